//! Messages that no `Producer` has published: of another partition, or of no key.

use std::collections::HashMap;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::Subject;
use tokio::sync;
use tokio::time::sleep;

use super::Shared;
use super::load::Message;
use super::tenure::Tenure;
use super::work::PAUSE;
use crate::{Event, dead_letter};

/// Those that a tenure holds.
#[derive(Default)]
pub(super) struct Strangers {
    /// Where each is acknowledged, by its time and its sequence, which one of a stream that was made again may have, too.
    replies: Mutex<HashMap<(i128, u64), Subject>>,
    /// Held by the one that is written to the dead letters, or was refused a moment ago. There may be many.
    turn: sync::Mutex<()>,
}

impl Strangers {
    fn replies(&self) -> MutexGuard<'_, HashMap<(i128, u64), Subject>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes such a message once it is a dead letter. It would come again and again. Until then it is held, so that it does not count as delivered to
/// nobody, without its payload between two tries.
pub(super) fn refuse(
    shared: &Arc<Shared>,
    tenure: &Arc<Tenure>,
    subject: String,
    mut message: Message,
    reason: String,
) {
    let (place, reply) = ((message.stored, message.sequence), message.reply.clone());
    if tenure.strangers.replies().insert(place, reply).is_some() {
        // A copy of one that is held.
        return;
    }
    let (shared, tenure) = (Arc::clone(shared), Arc::clone(tenure));
    tokio::spawn(async move {
        let is_removed = store(&shared, &tenure, &subject, &mut message, &reason).await;
        let reply = tenure.strangers.replies().remove(&place);
        if let Some(reply) = reply.filter(|_| is_removed) {
            shared.acks.terminate(&tenure, reply);
        }
    });
}

/// Writes the message to the dead letters, again and again if they are refused. Returns whether it is there, or gone; otherwise the next owner
/// gets it.
async fn store(
    shared: &Shared,
    tenure: &Tenure,
    subject: &str,
    message: &mut Message,
    reason: &str,
) -> bool {
    let (fence, token) = (tenure.fence, subject.rsplit('.').next().unwrap_or_default());
    let mut is_told = false;
    let strangers = &tenure.strangers;
    loop {
        let _turn = match strangers.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                // It gives back its room, which keys need, unless that many do already.
                if strangers.replies().len() <= shared.config.window as usize {
                    message.park();
                }
                strangers.turn.lock().await
            }
        };
        // Without the lease the message may be another owner's.
        tokio::select! {
            biased;
            () = tenure.lost() => return false,
            () = shared.lease.held() => {}
        }
        // A hand-over waits for a try.
        let Some(running) = tenure.begin() else {
            return false;
        };
        let publish = async {
            if message.held.is_parked() && message.fetch(shared, tenure).await?.is_none() {
                return Ok(false);
            }
            let (messages, mut stored) = (slice::from_ref(&*message), 0);
            let letter =
                dead_letter::publish(shared, fence, token, messages, 0, reason, &mut stored);
            letter.await.map(|()| true)
        };
        let error = match publish.await {
            Ok(is_there) => {
                if is_there {
                    let stranger = Event::Stranger {
                        subject: subject.to_owned(),
                        sequence: message.sequence,
                        reason: reason.to_owned(),
                    };
                    shared.tell_caught(stranger);
                }
                return true;
            }
            Err(error) => error,
        };
        drop(running);
        if !is_told {
            is_told = true;
            let (key, reason) = (subject.to_owned(), error.to_string());
            shared.tell_caught(Event::DeadLetterRefused { key, reason });
        }
        message.park();
        sleep(PAUSE).await;
    }
}
