//! What the events of watches lead to.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_runtime::reflector::{self, ObjectRef};
use kube_runtime::watcher::Event;

use super::own::Own;
use super::related::Related;
use super::{Change, Urgency};

fn map(name: &str, version: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.into());
    map.metadata.resource_version = Some(version.into());
    map
}

/// A secret that maps to the config maps that its labels name.
fn secret(name: &str, version: &str, targets: &[&str]) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.into());
    secret.metadata.resource_version = Some(version.into());
    let labels = targets
        .iter()
        .map(|target| ((*target).to_owned(), String::new()));
    secret.metadata.labels = Some(labels.collect());
    secret
}

fn targets(secret: Secret) -> Vec<ObjectRef<ConfigMap>> {
    let labels = secret.metadata.labels.unwrap_or_default();
    labels.keys().map(|name| ObjectRef::new(name)).collect()
}

/// Writes each change as "+name" (a change), "name" (background) or "-name" (gone), sorted.
fn written(changes: &[Change<ConfigMap>]) -> String {
    let write = |change: &Change<ConfigMap>| match change {
        Change::Reconcile {
            object,
            urgency: Urgency::Change,
            ..
        } => format!("+{}", object.name),
        Change::Reconcile { object, .. } => object.name.clone(),
        Change::Gone(object) => format!("-{}", object.name),
    };
    let mut all: Vec<_> = changes.iter().map(write).collect();
    all.sort();
    all.join(" ")
}

/// K1, K3, K5, K6
#[test]
fn a_list_is_reported_from_the_store_at_its_end() {
    let (store, mut writer) = reflector::store();
    let mut own = Own::new(store, ());
    let mut next = |event: Event<ConfigMap>| {
        writer.apply_watcher_event(&event);
        written(&own.event(&event))
    };
    assert_eq!(next(Event::Init), "");
    for name in ["a", "b", "c"] {
        assert_eq!(next(Event::InitApply(map(name, "1"))), ""); // not in the store yet
    }
    assert_eq!(next(Event::InitDone), "a b c");
    assert_eq!(next(Event::Apply(map("a", "2"))), "+a");
    // A list that is interrupted begins again.
    assert_eq!(next(Event::Init), "");
    assert_eq!(next(Event::InitApply(map("x", "3"))), "");
    assert_eq!(next(Event::Init), "");
    for (name, version) in [("a", "2"), ("b", "5"), ("new", "4")] {
        assert_eq!(next(Event::InitApply(map(name, version))), "");
    }
    assert_eq!(next(Event::InitDone), "+b +new -c a");
    assert_eq!(next(Event::Delete(map("a", "6"))), "-a");
}

/// K6: the watch was interrupted between the deletion and the creation.
#[test]
fn an_object_that_is_replaced_unseen_is_gone_before_it_changes() {
    let (store, mut writer) = reflector::store();
    let mut own = Own::new(store, ());
    let mut list = |uid: &str, version| {
        let mut object = map("a", version);
        object.metadata.uid = Some(uid.into());
        let mut changes = Vec::new();
        for event in [Event::Init, Event::InitApply(object), Event::InitDone] {
            writer.apply_watcher_event(&event);
            changes.extend(own.event(&event));
        }
        changes
    };
    assert_eq!(written(&list("first", "1")), "a");
    assert_eq!(written(&list("first", "2")), "+a");
    let changes = list("second", "3");
    assert_eq!(written(&changes), "+a -a");
    let [Change::Gone(old), Change::Reconcile { object: new, .. }] = &changes[..] else {
        panic!("the deletion comes first");
    };
    let uids = [old, new].map(|object| object.extra.uid.as_deref());
    assert_eq!(uids, [Some("first"), Some("second")]);
}

/// K4, K5
#[test]
fn what_related_objects_map_to_and_mapped_to_is_reported() {
    let mut related = Related::new((), targets);
    let mut next = |event: Event<Secret>| written(&related.event(event));
    assert_eq!(next(Event::Init), "");
    assert_eq!(next(Event::InitApply(secret("s", "1", &["a", "b"]))), "a b");
    assert_eq!(next(Event::InitApply(secret("t", "1", &["c"]))), "c");
    assert_eq!(next(Event::InitApply(secret("u", "1", &["d"]))), "d");
    assert_eq!(next(Event::InitDone), "");
    assert_eq!(
        next(Event::Apply(secret("s", "2", &["b", "e"]))),
        "+a +b +e"
    );
    assert_eq!(next(Event::Init), "");
    assert_eq!(next(Event::InitApply(secret("s", "2", &["b", "e"]))), "b e"); // as it was
    assert_eq!(next(Event::InitApply(secret("t", "3", &["f"]))), "+f"); // changed
    assert_eq!(next(Event::InitApply(secret("v", "4", &["g"]))), "+g"); // new
    // "t" does not map to "c" any more, and "u" has vanished.
    assert_eq!(next(Event::InitDone), "+c +d");
    assert_eq!(next(Event::Delete(secret("s", "5", &["e"]))), "+b +e");
    assert_eq!(next(Event::Apply(secret("s", "6", &["a"]))), "+a"); // forgotten
}

/// K3, K4: a list has pages, and is interrupted if the next one cannot be had.
#[test]
fn what_only_an_interrupted_list_had_is_reported_again() {
    let mut related = Related::new((), targets);
    let mut next = |event: Event<Secret>| written(&related.event(event));
    assert_eq!(next(Event::Init), "");
    assert_eq!(next(Event::InitApply(secret("s", "1", &["a"]))), "a");
    assert_eq!(next(Event::Init), "");
    assert_eq!(next(Event::InitApply(secret("t", "2", &["b"]))), "b");
    assert_eq!(next(Event::InitDone), "+a"); // "s" has vanished
    assert_eq!(next(Event::Init), "");
    assert_eq!(next(Event::InitApply(secret("t", "3", &["c"]))), "+c");
    assert_eq!(next(Event::InitApply(secret("u", "4", &["d"]))), "+d");
    assert_eq!(next(Event::Init), "");
    assert_eq!(next(Event::InitApply(secret("t", "3", &["c"]))), "c"); // as it was reported
    assert_eq!(next(Event::InitApply(secret("u", "4", &["d"]))), "d");
    assert_eq!(next(Event::Init), "");
    assert_eq!(next(Event::InitApply(secret("t", "5", &["e"]))), "+e");
    // "t" maps to neither "b" nor "c" any more, and "u" has vanished: each once.
    assert_eq!(next(Event::InitDone), "+b +c +d");
}

/// K4: a list that is streamed may have an object twice, as it changes meanwhile.
#[test]
fn an_object_that_changes_within_a_list_asks_for_what_it_mapped_to() {
    let mut related = Related::new((), targets);
    let mut next = |event: Event<Secret>| written(&related.event(event));
    assert_eq!(next(Event::Init), "");
    assert_eq!(next(Event::InitApply(secret("s", "1", &["a", "b"]))), "a b");
    assert_eq!(
        next(Event::InitApply(secret("s", "2", &["b", "c"]))),
        "+a b c"
    );
    assert_eq!(next(Event::InitDone), "");
    assert_eq!(next(Event::Apply(secret("s", "3", &["c"]))), "+b +c");
}
