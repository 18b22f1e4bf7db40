//! What is lost of revocations that wait.

use std::collections::VecDeque;
use std::iter;

use crate::client::{Event, Partition};

/// Whether the group has gone on without a reply to the revocation before this. If a topic comes, librdkafka joins the group again
/// before partitions are given back: others may have them by now.
pub(super) fn is_next(event: &Event) -> bool {
    !matches!(event, Event::Revoke(_, true))
}

/// The partitions of revocations, the current one first: of those behind which the group goes on, and of lost ones, if the client says
/// so of all.
pub(super) fn named<'e>(
    current: Option<(&'e [Partition], bool)>,
    events: &'e VecDeque<Event>,
    is_lost: bool,
) -> Vec<&'e Partition> {
    let revoked = |event| match event {
        &Event::Revoke(ref partitions, is_lost) => Some((&partitions[..], is_lost)),
        Event::Assign(_) => None,
    };
    let revoked = iter::once(current).chain(events.iter().map(revoked));
    let mut named = Vec::new();
    for (next, of) in revoked.enumerate() {
        let goes_on = events.iter().skip(next).any(is_next);
        if let Some((partitions, of_lost)) = of
            && (goes_on || is_lost && of_lost)
        {
            named.extend(partitions);
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions(topic: &str) -> Vec<Partition> {
        vec![(topic.to_owned(), 0)]
    }

    fn assign(topic: &str) -> Event {
        Event::Assign(partitions(topic))
    }

    fn revoke(topic: &str, is_lost: bool) -> Event {
        Event::Revoke(partitions(topic), is_lost)
    }

    #[test] // R2, R6
    fn a_revocation_behind_which_the_group_goes_on_is_lost() {
        let now = partitions("now");
        for (current, events, is_lost, lost) in [
            (None, vec![revoke("a", false)], false, ""),
            (Some(false), vec![], false, ""),
            (None, vec![assign("a"), revoke("b", false)], false, ""),
            // A topic has come.
            (Some(false), vec![assign("a")], false, "now"),
            (Some(false), vec![revoke("a", false)], false, "now"),
            (None, vec![revoke("a", false), assign("b")], false, "a"),
            // The assignment takes from the client that all was lost.
            (None, vec![revoke("a", true), assign("b")], false, "a"),
            // A topic is gone. The others have their grace.
            (Some(false), vec![revoke("a", true)], true, "a"),
            (Some(true), vec![], true, "now"),
        ] {
            let text = format!("{current:?} {events:?} {is_lost}");
            let current = current.map(|is_lost| (&now[..], is_lost));
            let events = VecDeque::from(events);
            let found = named(current, &events, is_lost);
            let found: Vec<_> = found.iter().map(|(topic, _)| &**topic).collect();
            assert_eq!(found.concat(), lost, "{text}");
        }
    }
}
