//! Messages that no `Producer` has published: of another partition, or of no key.

use std::slice;
use std::sync::Arc;

use tokio::time::sleep;

use super::Shared;
use super::load::Message;
use super::tenure::Tenure;
use super::work::PAUSE;
use crate::{Event, dead_letter};

/// Removes such a message once it is a dead letter. It would come again and again. Until then it is held, so that it does not count as delivered to
/// nobody, without its payload between two tries.
pub(super) fn refuse(
    shared: &Arc<Shared>,
    tenure: &Arc<Tenure>,
    subject: String,
    mut message: Message,
    reason: String,
) {
    let (shared, tenure) = (Arc::clone(shared), Arc::clone(tenure));
    let (fence, consumer) = (tenure.fence, tenure.consumer_name());
    // There are none, unless a producer is wrong.
    tokio::spawn(async move {
        let token = subject.rsplit('.').next().unwrap_or_default();
        let mut is_told = false;
        // A hand-over waits for a try. The next owner, or the next consumer, sends the message again.
        while let Some(running) = tenure.begin()
            && tenure.consumer_name() == consumer
        {
            let publish = async {
                if message.held.is_parked() && message.fetch(&shared, &tenure).await?.is_none() {
                    return Ok(false);
                }
                let (messages, mut stored) = (slice::from_ref(&message), 0);
                let letter =
                    dead_letter::publish(&shared, fence, token, messages, 0, &reason, &mut stored);
                letter.await.map(|()| true)
            };
            let error = match publish.await {
                Ok(is_there) => {
                    shared.acks.terminate(&tenure, message.reply);
                    if is_there {
                        let sequence = message.sequence;
                        shared.tell(Event::Stranger {
                            subject,
                            sequence,
                            reason,
                        });
                    }
                    return;
                }
                Err(error) => error,
            };
            drop(running);
            if !is_told {
                is_told = true;
                shared.tell(Event::DeadLetterRefused {
                    key: subject.clone(),
                    reason: error.to_string(),
                });
            }
            message.park();
            sleep(PAUSE).await;
        }
    });
}
