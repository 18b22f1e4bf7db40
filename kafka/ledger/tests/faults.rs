//! Members that are killed, stopped, joined and ended, on a real broker, with the witness.

mod common;

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use common::{scenario, sound};
use ledger::lab::Lab;

/// The group protocols.
const COOPERATIVE: &[&str] = &[];
const EAGER: &[&str] = &["--set", "partition.assignment.strategy=range"];

#[test] // R1, R2, R3
fn a_member_that_is_killed_repeats_only_what_was_not_committed() -> Result<()> {
    scenario("killed", 4, &["--commit", "100"], |lab| {
        lab.producing.produce(30_000, 200, 20)?;
        lab.producing.flush()?;
        for (round, at) in [5_000, 12_000, 20_000].into_iter().enumerate() {
            let name = format!("m{round}");
            lab.join(&name)?;
            lab.finished(at)?;
            lab.kill(&name)?;
        }
        lab.join("last")?;
        let seen = lab.judge()?;
        sound(&seen);
        // In each round at most what was done in the tenth of a second between two commits, and while one was on its way.
        assert!(seen.repeated < 3 * 4000, "{}", seen.repeated);
        lab.end("last")?;
        ensure!(lab.lag()? == 0, "a lag stays");
        Ok(())
    })
}

#[test] // R3
fn what_is_finished_beyond_a_slow_record_is_not_repeated_after_a_kill() -> Result<()> {
    scenario("slow", 1, &["--slow", "slow", "--work", "0"], |lab| {
        lab.producing.one("slow", 20)?;
        lab.producing.produce(30_000, 1000, 20)?;
        lab.producing.flush()?;
        lab.join("first")?;
        lab.finished(30_000)?;
        // Nothing else changes: one commit has it all.
        lab.until("a commit", |lab| {
            lab.stored().is_ok_and(|stored| {
                stored
                    .iter()
                    .any(|(_, offset, text)| *offset == Some(0) && !text.is_empty())
            })
        })?;
        sleep(Duration::from_millis(1500));
        let stored = lab.stored()?;
        println!(
            "committed: {:?}",
            stored
                .iter()
                .map(|(_, offset, text)| (offset, text.chars().count()))
                .collect::<Vec<_>>()
        );
        lab.kill("first")?;
        lab.options
            .retain(|option| option != "--slow" && option != "slow");
        lab.join("second")?;
        lab.judge()?;
        lab.committed()?;
        let seen = lab.judge()?;
        sound(&seen);
        assert_eq!(seen.repeated, 0);
        println!("{}", lab.end("second")?);
        Ok(())
    })
}

#[test] // R3: what the metadata is for
fn without_metadata_it_is_repeated() -> Result<()> {
    scenario(
        "forget",
        1,
        &["--slow", "slow", "--work", "0", "--forget"],
        |lab| {
            lab.producing.one("slow", 20)?;
            lab.producing.produce(5_000, 100, 20)?;
            lab.producing.flush()?;
            lab.join("first")?;
            lab.finished(5_000)?;
            sleep(Duration::from_millis(1500));
            lab.kill("first")?;
            lab.options
                .retain(|option| option != "--slow" && option != "slow");
            lab.join("second")?;
            lab.judge()?;
            lab.committed()?;
            let seen = lab.judge()?;
            sound(&seen);
            assert_eq!(seen.repeated, 5_000);
            Ok(())
        },
    )
}

/// Members join, and end by SIGTERM, while there is work.
fn join_and_leave(name: &str, options: &[&str], is_new: bool) -> Result<()> {
    scenario(name, 6, options, |lab| {
        if is_new {
            broker_side(lab);
        }
        lab.join("m0")?;
        lab.join("m1")?;
        for round in 0..6 {
            for _ in 0..20 {
                lab.producing.produce(200, 100, 20)?;
                sleep(Duration::from_millis(100));
            }
            let name = format!("m{}", round + 2);
            lab.join(&name)?;
            let ended = lab.end(&format!("m{round}"))?;
            println!("{ended}");
            let is_whole = ended.contains(" 0 cancelled") && !ended.contains("failed");
            assert!(is_whole, "{ended}");
        }
        lab.producing.flush()?;
        let seen = lab.judge()?;
        sound(&seen);
        assert_eq!(seen.repeated, 0);
        for name in lab.members() {
            println!("{}", lab.end(&name)?);
        }
        ensure!(lab.lag()? == 0, "a lag of {} stays", lab.lag()?);
        Ok(())
    })
}

#[test] // R1, R2, R6
fn members_that_join_and_leave_repeat_nothing() -> Result<()> {
    join_and_leave("leave-cooperative", COOPERATIVE, false)
}

#[test] // R1, R2, R6
fn members_of_an_eager_group_that_join_and_leave_repeat_nothing() -> Result<()> {
    join_and_leave("leave-eager", EAGER, false)
}

/// The options of a group whose brokers assign the partitions (KIP-848). The brokers set the session.
fn broker_side(lab: &mut Lab) {
    lab.options = ["--set", "group.protocol=consumer"].map(Into::into).into();
}

#[test] // R1, R2, R6
fn members_of_a_group_of_the_new_protocol_that_join_and_leave_repeat_nothing() -> Result<()> {
    join_and_leave("leave-new", COOPERATIVE, true)
}

/// Members join, and are killed, while there is work.
fn join_and_kill(name: &str, options: &[&str], is_new: bool) -> Result<()> {
    scenario(name, 6, options, |lab| {
        if is_new {
            broker_side(lab);
        }
        lab.join("m0")?;
        lab.join("m1")?;
        for round in 0..3 {
            for _ in 0..40 {
                lab.producing.produce(100, 100, 20)?;
                sleep(Duration::from_millis(100));
            }
            lab.join(&format!("m{}", round + 2))?;
            lab.kill(&format!("m{round}"))?;
        }
        lab.producing.flush()?;
        sound(&lab.judge()?);
        Ok(())
    })
}

#[test] // R1, R2
fn members_that_join_and_are_killed_lose_nothing() -> Result<()> {
    join_and_kill("kill-cooperative", COOPERATIVE, false)
}

#[test] // R1, R2
#[ignore = "takes long: the job `mix` runs it"]
fn members_of_an_eager_group_that_are_killed_lose_nothing() -> Result<()> {
    join_and_kill("kill-eager", EAGER, false)
}

#[test] // R1, R2
#[ignore = "takes long: the job `mix` runs it"]
fn members_of_a_group_of_the_new_protocol_that_are_killed_lose_nothing() -> Result<()> {
    join_and_kill("kill-new", COOPERATIVE, true)
}

#[test] // R6
fn a_member_that_is_fenced_ends_with_an_error() -> Result<()> {
    scenario(
        "fenced",
        2,
        &["--set", "group.instance.id=one", "--work", "200"],
        |lab| {
            lab.producing.produce(600, 50, 20)?;
            lab.producing.flush()?;
            lab.join("first")?;
            lab.finished(20)?;
            lab.join("second")?;
            let error = lab
                .ended("first", Duration::from_secs(60))
                .expect_err("it is fenced");
            // And not because it was killed after a minute.
            assert!(error.to_string().contains("exit status: 1"), "{error}");
            // Until the first one's next heartbeat or commit both handle postings. Then it ends, and nothing of it overlaps any more.
            let before = lab.witness.seen().violations.len();
            let seen = lab.judge()?;
            assert_eq!(seen.violations.len(), before, "{seen}");
            println!("{} repeated, {before} overlaps", seen.repeated);
            Ok(())
        },
    )
}

#[test] // R4
fn a_key_that_fails_becomes_dead_letters_in_order_and_others_go_on() -> Result<()> {
    let options = [
        "--poison",
        "bad",
        "--panics",
        "worse",
        "--retries",
        "2",
        "--dead",
        "letters-dead",
    ];
    scenario("letters", 2, &options, |lab| {
        lab.create("letters-dead", 1, &[])?;
        for _ in 0..20 {
            lab.producing.one("bad", 20)?;
            lab.producing.one("worse", 20)?;
            lab.producing.produce(500, 50, 20)?;
        }
        lab.producing.flush()?;
        lab.join("first")?;
        lab.finished(10_000)?;
        let letters = lab.dead_letters("letters-dead", 40)?;
        for account in ["bad", "worse"] {
            let of_account = letters.iter().filter(|(name, ..)| name == account);
            let numbers: Vec<_> = of_account.clone().map(|(_, number, _)| *number).collect();
            assert_eq!(numbers, (0..20).collect::<Vec<_>>());
            for (_, _, headers) in of_account {
                let error = if account == "bad" {
                    "bad is poison"
                } else {
                    "panicked: worse panics"
                };
                assert_eq!(headers["keyqueue-error"], error);
                assert_eq!(headers["keyqueue-attempts"], "3");
                assert_eq!(headers["keyqueue-topic"], "letters");
                assert!(headers["keyqueue-first-failure"] <= headers["keyqueue-last-failure"]);
            }
        }
        let seen = lab.judge()?;
        sound(&seen);
        assert_eq!((seen.repeated, seen.most_attempts), (0, 3));
        println!("{}", lab.end("first")?);
        ensure!(lab.lag()? == 0, "a lag stays");
        Ok(())
    })
}

#[test] // R4
fn a_dead_letter_topic_that_refuses_keeps_the_record_unfinished_and_others_go_on() -> Result<()> {
    // The topic of the letters takes none of this size, and so the record stays, until it does.
    let options = [
        "--poison",
        "bad",
        "--retries",
        "0",
        "--dead",
        "refuses-dead",
    ];
    scenario("refuses", 1, &options, |lab| {
        lab.create("refuses-dead", 1, &[("max.message.bytes", "100")])?;
        lab.producing.one("bad", 2000)?;
        lab.producing.produce(5_000, 50, 20)?;
        lab.producing.flush()?;
        lab.join("first")?;
        lab.finished(5_000)?;
        sleep(Duration::from_secs(2));
        let (_, offset, metadata) = lab.stored()?.remove(0);
        assert_eq!(offset, Some(0));
        assert!(!metadata.is_empty());
        println!("{}", lab.end("first")?);
        assert_eq!(lab.stored()?[0].1, Some(0));
        assert_eq!(lab.witness.seen().repeated, 0);
        Ok(())
    })
}

#[test] // R4
fn a_key_that_is_blocked_does_not_keep_others_from_going_on() -> Result<()> {
    scenario("blocked", 1, &["--poison", "bad", "--block"], |lab| {
        for _ in 0..50 {
            lab.producing.one("bad", 20)?;
            lab.producing.produce(100, 50, 20)?;
        }
        lab.producing.flush()?;
        lab.join("first")?;
        lab.finished(5_000)?;
        println!("{}", lab.end("first")?);
        assert_eq!(lab.stored()?[0].1, Some(0));
        // It is mended.
        lab.options.truncate(2);
        lab.join("second")?;
        let seen = lab.judge()?;
        sound(&seen);
        assert_eq!(seen.repeated, 0);
        Ok(())
    })
}

#[test] // R1
fn metadata_of_another_program_is_ignored() -> Result<()> {
    scenario("foreign", 1, COOPERATIVE, |lab| {
        lab.producing.produce(2_000, 50, 20)?;
        lab.producing.flush()?;
        for (index, metadata) in (1..).zip(["of another program", "\u{3400}\u{3401}", "AAAA"]) {
            lab.group = format!("foreign-{index}");
            lab.store(0, 0, metadata)?;
            lab.join("member")?;
            lab.committed()?;
            println!("{}", lab.end("member")?);
            let seen = lab.witness.judge(&lab.producing.produced);
            sound(&seen);
            assert_eq!(seen.begun, 2000 * index);
        }
        Ok(())
    })
}

/// Handles a posting that takes a minute, and these many behind it, of 50 accounts, and returns the metadata of that.
fn all_but_the_first(lab: &mut Lab, behind: u64) -> Result<String> {
    lab.producing.one("slow", 20)?;
    lab.producing.produce(behind, 50, 20)?;
    lab.producing.flush()?;
    lab.join("first")?;
    lab.finished(behind)?;
    let mut found = String::new();
    for _ in 0..100 {
        let (_, offset, text) = lab.stored()?.remove(0);
        // Once more, as the first commit may have come before the last posting.
        if offset == Some(0) && !text.is_empty() && text == found {
            break;
        }
        found = text;
        sleep(Duration::from_millis(1000));
    }
    ensure!(!found.is_empty(), "no metadata: {:?}", lab.stored()?);
    lab.kill("first")?;
    lab.options
        .retain(|option| option != "--slow" && option != "slow");
    Ok(found)
}

#[test] // R1
fn metadata_about_a_log_that_was_written_again_is_ignored() -> Result<()> {
    scenario("before", 1, &["--slow", "slow", "--work", "0"], |lab| {
        let metadata = all_but_the_first(lab, 1_000)?;
        // The log is as long, but another one.
        lab.change_topic("afterwards", &[])?;
        for number in 0..2_000 {
            lab.producing.one(&format!("b{}", number % 50), 20)?;
        }
        lab.producing.flush()?;
        // The first member's session has not ended.
        lab.group = "afterwards-group".to_owned();
        lab.store(0, 0, &metadata)?;
        lab.join("second")?;
        lab.finished(3_000)?;
        sound(&lab.witness.judge(&lab.producing.produced));
        println!("{}", lab.end("second")?);
        Ok(())
    })
}

#[test] // R1, R3
fn a_log_that_is_compacted_under_what_is_remembered_loses_and_repeats_nothing() -> Result<()> {
    scenario(
        "uncompacted",
        1,
        &["--slow", "slow", "--work", "0"],
        |lab| {
            let settings = [
                ("cleanup.policy", "compact"),
                ("segment.ms", "1000"),
                ("min.cleanable.dirty.ratio", "0.01"),
            ];
            lab.change_topic("compacted", &settings)?;
            all_but_the_first(lab, 3_000)?;
            sleep(Duration::from_millis(1100));
            // Of each account another one: of those before none is kept, but those that were written last.
            lab.producing.produce(50, 50, 20)?;
            lab.producing.flush()?;
            lab.until("compaction", |lab| {
                lab.records().is_ok_and(|records| records < 500)
            })?;
            println!("{} of 3051 records are left", lab.records()?);
            lab.join("second")?;
            lab.judge()?;
            lab.committed()?;
            let seen = lab.judge()?;
            sound(&seen);
            assert_eq!(seen.repeated, 0);
            println!("{}", lab.end("second")?);
            Ok(())
        },
    )
}

#[test] // R5
fn the_memory_of_the_process_is_bounded() -> Result<()> {
    let options = ["--room", "1000", "--work", "200"];
    scenario("memory", 1, &options, |lab| {
        lab.producing.produce(20_000, 5_000, 10_000)?;
        lab.producing.flush()?;
        lab.join("first")?;
        lab.finished(1_000)?;
        let memory = lab.memory("first")?;
        println!("{memory} MiB, with 10 MB in the room, and a log of 200 MB");
        // The room, what is prefetched (8 MiB), a response on its way, and the process.
        assert!(memory < 80, "{memory}");
        println!("{}", lab.end("first")?);
        Ok(())
    })
}

#[test] // R1
fn a_log_that_was_cut_beyond_the_committed_offset_is_read_on() -> Result<()> {
    scenario("cut", 1, COOPERATIVE, |lab| {
        lab.producing.produce(4_000, 50, 20)?;
        lab.producing.flush()?;
        lab.join("first")?;
        lab.finished(1_000)?;
        lab.kill("first")?;
        let before = lab.witness.finished();
        assert!(before < 3_000, "{before}");
        // Retention has passed the committed offset.
        lab.truncate(3_000)?;
        lab.join("second")?;
        lab.until("the end", |lab| lab.lag().is_ok_and(|lag| lag == 0))?;
        println!("{}", lab.end("second")?);
        assert!(lab.witness.finished() >= before + 1_000);
        Ok(())
    })
}
