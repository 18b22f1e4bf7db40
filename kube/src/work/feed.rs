//! From the sources to the queue.

use std::collections::VecDeque;
use std::hash::Hash;

use futures_util::future;
use futures_util::stream::{SelectAll, StreamExt, TryStreamExt, select_all};
use kube_client::Resource;
use kube_runtime::WatchStreamExt;
use kube_runtime::controller::Error;
use kube_runtime::reflector::Store;
use kube_runtime::utils::{Backoff, StreamBackoff};
use tokio::sync::mpsc;

use super::queue::{Queue, own_reference, put};
use crate::QueueError;
use crate::changes::Change;
use crate::controller::{Reconciled, Source};
use crate::debounce::Debounce;

/// How many errors of watches wait to be read. Further ones are only traced.
const MOST_UNSENT: usize = 128;

/// Puts what the sources ask for into the queue, until all of them have ended.
pub(super) async fn feed<K, E>(
    sources: Vec<Source<K>>,
    backoff: Option<Box<dyn Backoff>>,
    debounce: Option<Debounce<K>>,
    queue: &Queue<K>,
    store: &Store<K>,
    results: &mpsc::Sender<Reconciled<K, E>>,
) where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let put = |change| put(queue, change);
    let Some(debounce) = debounce else {
        let put = |change| put(own_reference(change, store));
        return each(sources, backoff, results, put).await;
    };
    let quiet = debounce.forward(put);
    let changes = async {
        let take = |change| {
            debounce
                .take(own_reference(change, store))
                .into_iter()
                .for_each(put);
        };
        each(sources, backoff, results, take).await;
        debounce.end().await;
    };
    tokio::join!(quiet, changes);
}

/// Passes each change to `f`, and each error to the results.
async fn each<K, E>(
    sources: Vec<Source<K>>,
    backoff: Option<Box<dyn Backoff>>,
    results: &mpsc::Sender<Reconciled<K, E>>,
    f: impl Fn(Change<K>) + Sync,
) where
    K: Resource + 'static,
{
    // A back-off begins anew after each item, so what is no success goes around it.
    let successes = sources.into_iter().map(|source| {
        source.try_filter_map(|(changes, is_success)| {
            if is_success {
                return future::ok(Some(changes));
            }
            changes.into_iter().for_each(&f);
            future::ok(None)
        })
    });
    // One type for both kinds of back-off: a stream that never fails needs none.
    let mut sources = match backoff {
        None => select_all(successes.map(|source| source.default_backoff().boxed())),
        Some(backoff) => {
            let all: SelectAll<_> = select_all(successes);
            select_all([StreamBackoff::new(all, backoff).boxed()])
        }
    };
    // The watches go on while nobody reads.
    let mut unsent = VecDeque::new();
    loop {
        let changes = tokio::select! {
            biased;
            room = results.reserve(), if !unsent.is_empty() => {
                // Nobody reads the results of a controller that is being dropped.
                if let (Ok(room), Some(error)) = (room, unsent.pop_front()) {
                    room.send(Err(error));
                }
                continue;
            }
            changes = sources.next() => changes,
        };
        match changes {
            Some(Ok(changes)) => changes.into_iter().for_each(&f),
            Some(Err(error)) => {
                tracing::warn!(%error, "a watch failed");
                if unsent.len() < MOST_UNSENT {
                    unsent.push_back(Error::QueueError(QueueError::Watch(error)));
                }
            }
            None => break,
        }
    }
    for error in unsent {
        let _ = results.send(Err(error)).await;
    }
}
