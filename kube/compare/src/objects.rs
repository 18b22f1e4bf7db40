//! The objects: config maps with a value.

use std::collections::BTreeMap;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// Of the objects that are reconciled.
pub(crate) const LABEL: &str = "role=source";
/// How many requests are under way.
const REQUESTS: usize = 16;

pub(crate) fn name(index: usize) -> String {
    format!("source-{index:05}")
}

pub(crate) fn value(object: &ConfigMap) -> String {
    let value = object.data.as_ref().and_then(|data| data.get("value"));
    value.cloned().unwrap_or_default()
}

fn with_value(value: &str) -> Option<BTreeMap<String, String>> {
    Some(BTreeMap::from([("value".to_owned(), value.to_owned())]))
}

/// Creates the namespace and its objects, if they are not there.
pub(crate) async fn prepare(
    client: Client,
    namespace: &str,
    count: usize,
) -> Result<Api<ConfigMap>> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let apply = PatchParams::apply("compare").force();
    let object =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    namespaces
        .patch(namespace, &apply, &Patch::Apply(object))
        .await?;
    let api = Api::<ConfigMap>::namespaced(client, namespace);
    let some = api
        .list(&ListParams::default().labels(LABEL).limit(1))
        .await?;
    if some.items.is_empty() {
        stream::iter(0..count)
            .map(|index| create(&api, index))
            .buffer_unordered(REQUESTS)
            .try_collect::<()>()
            .await?;
    }
    Ok(api)
}

async fn create(api: &Api<ConfigMap>, index: usize) -> Result<()> {
    let object = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name(index)),
            labels: Some(BTreeMap::from([("role".to_owned(), "source".to_owned())])),
            ..ObjectMeta::default()
        },
        data: with_value("new"),
        ..ConfigMap::default()
    };
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// Writes a value.
pub(crate) async fn write(api: &Api<ConfigMap>, name: &str, value: &str) -> Result<()> {
    let patch = Patch::Merge(json!({ "data": { "value": value } }));
    api.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Writes to all objects, to each several times in a row. The last value is `goal`.
pub(crate) async fn write_all(
    api: &Api<ConfigMap>,
    count: usize,
    writes: usize,
    goal: &str,
) -> Result<()> {
    stream::iter(0..count)
        .map(|index| async move {
            for before in 1..writes {
                write(api, &name(index), &format!("{goal}-{before}")).await?;
            }
            write(api, &name(index), goal).await
        })
        .buffer_unordered(REQUESTS)
        .try_collect()
        .await
}

/// Writes the copy of an object.
pub(crate) async fn copy(api: &Api<ConfigMap>, source: &ConfigMap) -> Result<(), kube::Error> {
    let copy = ConfigMap {
        metadata: ObjectMeta {
            name: Some(format!("copy-of-{}", source.name_any())),
            ..ObjectMeta::default()
        },
        data: source.data.clone(),
        ..ConfigMap::default()
    };
    let apply = PatchParams::apply("copier").force();
    api.patch(&copy.name_any(), &apply, &Patch::Apply(&copy))
        .await?;
    Ok(())
}
