//! What a replica makes of records that are not what it has written.

use super::*;

const LEASE: Duration = Duration::from_secs(16);

fn session() -> Key {
    Key::Session("a.x.0".into())
}

fn seen(key: Key, value: Option<Value>, revision: Revision) -> Input {
    Input::Seen {
        key,
        value,
        revision,
    }
}

fn own(beat: u64, revision: Revision) -> Input {
    seen(session(), Some(Value::Live { beat }), revision)
}

fn wrote(key: Key, end: WriteEnd) -> Input {
    Input::Wrote { key, end }
}

/// It has renewed its lease once, and owns the partition.
fn member() -> Member {
    let mut member = Member::new("a", "x", 1, LEASE, Time::ZERO);
    member.step(Time::ZERO, Input::Snapshot);
    member.step(Time::ZERO, wrote(session(), WriteEnd::Written(10)));
    member.step(Time::ZERO, wrote(Key::Partition(0), WriteEnd::Written(11)));
    member.step(LEASE / 4, Input::Tick);
    member.step(LEASE / 4, wrote(session(), WriteEnd::Written(12)));
    assert_eq!(member.owned().collect::<Vec<_>>(), [(0, 11)]);
    member
}

/// N13: a replica that never gets its first lease says so, as one that loses it does.
#[test]
fn a_lease_that_does_not_come_is_told_as_one_that_is_late() {
    let is_told = |actions: Vec<Action>, told: Action| actions.contains(&told);
    let (late, first) = (LEASE / 4 * 3, Time::from_secs(5));
    for renewed in [false, true] {
        let mut member = Member::new("a", "x", 1, LEASE, first);
        member.step(first, Input::Snapshot);
        if renewed {
            member.step(first, wrote(session(), WriteEnd::Written(10)));
        }
        let before = first + late - Duration::from_millis(1);
        assert!(!is_told(
            member.step(before, Input::Tick),
            Action::Suspended
        ));
        assert!(member.next_tick() <= first + late);
        for times in [true, false] {
            let actions = member.step(first + late, Input::Tick);
            assert_eq!(is_told(actions, Action::Suspended), times, "once");
        }
        // The first may have been sent too long ago to count.
        let resumes = [20, 21].map(|revision| {
            let end = wrote(session(), WriteEnd::Written(revision));
            is_told(member.step(first + late, end), Action::Resumed)
        });
        assert_eq!(resumes, [renewed, !renewed], "once");
    }
}

/// N14: an old copy of the bucket is known, also if its revisions are higher.
#[test]
fn what_it_has_not_written_is_of_another_bucket() {
    let mut member = member();
    let claim = |revision| {
        let session = "a.x.0".to_owned();
        let value = Value::Owned { session, base: 0 };
        seen(Key::Partition(0), Some(value), revision)
    };
    for (seen, is_other) in [
        (own(1, 10), false), // a watcher that lags
        (own(2, 12), false),
        (own(3, 13), false), // not known yet
        (own(1, 20), true),
        (own(2, 20), true),
        (claim(11), false),
        (claim(20), true),
    ] {
        assert_eq!(member.is_of_another_bucket(&seen), is_other, "{seen:?}");
    }
    // It claims the partition again.
    let (partition, above) = (0, 50);
    member.step(LEASE / 4, Input::Outranked { partition, above });
    assert!(!member.is_of_another_bucket(&claim(20)));
}

/// N12: an old record of a server that has lost the lead costs nothing while the lease holds.
#[test]
fn a_record_that_is_older_counts_when_the_lease_is_over() {
    let mut member = member();
    let missing = || seen(session(), None, 0);
    member.step(LEASE / 2, Input::Tick);
    let reads = member.step(LEASE / 2, wrote(session(), WriteEnd::Conflict));
    assert!(matches!(&reads[..], [Action::Read { .. }]), "{reads:?}");
    let older = || own(1, 10);
    assert!(!member.is_older(LEASE / 2, &older()));
    let actions = member.step(LEASE / 2, older());
    assert_eq!((actions, member.owned().count()), (Vec::new(), 1));
    assert!(member.is_older(LEASE, &older()));
    // There is none in a bucket that was made again.
    assert!(member.is_older(LEASE / 2, &missing()));
    // It is read again, and is the one of before.
    member.step(LEASE / 2, own(2, 12));
    assert!(!member.is_older(LEASE, &missing()));
}

/// N5: what it has claimed just before it leaves is released before its session ends.
#[test]
fn a_claim_that_is_under_way_is_released_before_the_end() {
    let mut member = Member::new("a", "x", 1, LEASE, Time::ZERO);
    member.step(Time::ZERO, Input::Snapshot);
    member.step(Time::ZERO, wrote(session(), WriteEnd::Written(10)));
    let mut ends = |input| {
        let actions = member.step(Time::ZERO, input);
        let is_end = |action: &Action| matches!(action, Action::Write { value, .. } if *value == Value::Ended);
        (actions.iter().any(is_end), actions.contains(&Action::Left))
    };
    assert_eq!(ends(Input::Leave), (false, false));
    // That it leaves.
    assert_eq!(
        ends(wrote(session(), WriteEnd::Written(11))),
        (false, false)
    );
    let partition = || Key::Partition(0);
    assert_eq!(
        ends(wrote(partition(), WriteEnd::Written(12))),
        (false, false)
    );
    assert_eq!(
        ends(wrote(partition(), WriteEnd::Written(13))),
        (true, false)
    );
    assert_eq!(ends(wrote(session(), WriteEnd::Written(14))), (false, true));
    assert_eq!(member.owned().count(), 0);
}

/// N13: a partition waits for the lease of a dead owner, also while the server is away and when it is back, until something is known.
#[test]
fn a_partition_waits_for_a_dead_owner_until_its_record_says_otherwise() {
    let (mut member, other) = (member(), || Key::Session("b.x.0".into()));
    let live = |beat, revision| seen(other(), Some(Value::Live { beat }), revision);
    let owned = Value::Owned {
        session: "b.x.0".into(),
        base: 0,
    };
    member.step(LEASE / 4, live(1, 20));
    member.step(LEASE / 4, seen(Key::Partition(0), Some(owned), 21));
    member.step(LEASE / 2, Input::Tick);
    member.step(LEASE / 2, wrote(session(), WriteEnd::Written(22)));
    let late = member.late(LEASE / 2, LEASE / 4);
    let late = late.iter().map(|it| (it.partition, it.epoch, it.renewed));
    assert_eq!(late.collect::<Vec<_>>(), [(0, 21, 20)]);

    // The server was away, so the records of others are observed anew.
    let now = 2 * LEASE;
    member.step(now, Input::Tick);
    assert!(member.is_late(0, 21, 20));
    member.step(now, wrote(session(), WriteEnd::Written(23)));
    assert_eq!(member.late(now, LEASE / 4), []);
    assert!(member.is_late(0, 21, 20));

    let mut renewed = member.clone();
    renewed.step(now, live(2, 24));
    assert!(!renewed.is_late(0, 21, 20));
    // Another replica has ended the session, and takes the partition.
    member.step(now, seen(other(), Some(Value::Ended), 24));
    assert!(member.is_late(0, 21, 20));
    let owned = Value::Owned {
        session: "c.x.0".into(),
        base: 0,
    };
    member.step(now, seen(Key::Partition(0), Some(owned), 25));
    assert!(!member.is_late(0, 21, 20));
}
