//! What moves over from kube-runtime without a change: the same code, compiled for and run with
//! both controllers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use keyqueue_kube::Action;
use kube_client::Api;
use kube_client::core::{ApiResource, DynamicObject};
use kube_runtime::reflector::ObjectRef;
use kube_runtime::watcher::{Config, DefaultBackoff};

use crate::probe::{Failed, settle};
use crate::server::Server;

async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, Failed> {
    match map.metadata.name.as_deref() {
        Some("fails") => Err(Failed("as expected".into())),
        Some("waits") => Ok(Action::await_change()),
        _ => Ok(Action::requeue(Duration::from_secs(3600))),
    }
}

fn error_policy(_: Arc<ConfigMap>, _: &Failed, _: Arc<()>) -> Action {
    Action::requeue(Duration::from_secs(3600))
}

/// Runs this controller, and returns what its stream yields for four objects and one change.
macro_rules! run {
    ($krate:ident) => {{
        use $krate::{Config as Settings, Controller};
        let server = Server::default();
        server.put_all(&["fails", "waits", "comes-back", "changes"]);
        let maps = server.maps();
        let controller = Controller::new(maps, Config::default())
            .owns(server.secrets(), Config::default())
            .watches(server.secrets(), Config::default(), |secret: Secret| {
                secret.metadata.annotations.map(|_| ObjectRef::new("none"))
            })
            .with_config(Settings::default().concurrency(4).debounce(Duration::ZERO))
            .trigger_backoff(DefaultBackoff::default())
            .reconcile_all_on(futures_util::stream::pending())
            .graceful_shutdown_on(std::future::pending())
            .shutdown_on_signal();
        let store = controller.store();
        let mut stream = Box::pin(controller.run(reconcile, error_policy, Arc::new(())));
        let mut results = Vec::new();
        for n in 0..5 {
            if n == 4 {
                server.put("changes");
            }
            results.push(match stream.next().await.unwrap() {
                Ok((object, action)) => format!("{object} {action:?}"),
                Err(error) => error.to_string(),
            });
        }
        results.sort();
        assert_eq!(store.len(), 4);
        results
    }};
}

#[tokio::test]
async fn the_same_code_yields_the_same_results() {
    let theirs = run!(kube_runtime);
    let ours = run!(keyqueue_kube);
    assert_eq!(ours, theirs);
}

#[tokio::test]
async fn a_type_that_is_found_at_run_time_works() {
    async fn see(map: Arc<DynamicObject>, _: Arc<()>) -> Result<Action, Failed> {
        assert_eq!(map.metadata.name.as_deref(), Some("a"));
        Ok(Action::await_change())
    }
    let server = Server::default();
    server.put("a");
    let resource = ApiResource::erase::<ConfigMap>(&());
    let maps = Api::<DynamicObject>::all_with(server.client(), &resource);
    let controller = keyqueue_kube::Controller::new_with(maps, Config::default(), resource.clone())
        .owns_with(
            Api::<DynamicObject>::all_with(server.client(), &resource),
            resource,
            Config::default(),
        );
    let mut stream = Box::pin(controller.run_with_retries(see, Arc::new(())));
    let (object, _) = stream.next().await.unwrap().unwrap();
    assert_eq!(object.to_string(), "ConfigMap.v1./a.default");
    settle().await;
}
