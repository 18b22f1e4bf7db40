//! From the sources to the queue.

use std::collections::VecDeque;
use std::hash::Hash;

use futures_util::future;
use futures_util::stream::{SelectAll, Stream, StreamExt, TryStreamExt, select_all};
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
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    // An event that asks for nothing is no success, which would reset the back-off: a watcher yields one before it tries to list.
    let asking = sources
        .into_iter()
        .map(|source| source.try_filter(|changes: &Vec<_>| future::ready(!changes.is_empty())));
    // One type for both kinds of back-off: a stream that never fails needs none.
    let sources = match backoff {
        None => select_all(asking.map(|source| source.default_backoff().boxed())),
        Some(backoff) => {
            let all: SelectAll<_> = select_all(asking);
            select_all([StreamBackoff::new(all, backoff).boxed()])
        }
    };
    let put = |change| put(queue, change);
    let Some(debounce) = debounce else {
        return each(sources, results, |change| put(own_reference(change, store))).await;
    };
    let quiet = debounce.forward(put);
    let sources = async {
        let take = |change| {
            debounce
                .take(own_reference(change, store))
                .into_iter()
                .for_each(put);
        };
        each(sources, results, take).await;
        debounce.end().await;
    };
    tokio::join!(quiet, sources);
}

/// Passes each change to `f`, and each error to the results.
async fn each<K: Resource + 'static, E>(
    mut sources: impl Stream<Item = kube_runtime::watcher::Result<Vec<Change<K>>>> + Unpin,
    results: &mpsc::Sender<Reconciled<K, E>>,
    f: impl Fn(Change<K>),
) {
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
