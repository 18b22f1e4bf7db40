//! What takes long: brokers that are killed, transactions, topics that are made again, stopped members.

mod common;

use std::fs::File;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use common::{lab, scenario, sound};
use ledger::lab::Lab;
use ledger::producer::Producing;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use servers::kafka::Brokers;

/// Little is in memory, and takes its time: so that there is work left when a broker is back.
const LITTLE: [&str; 6] = [
    "--set",
    "session.timeout.ms=10000",
    "--room",
    "300",
    "--work",
    "20",
];

#[test] // R1, R2
#[ignore = "takes long: the job `mix` runs it"]
fn brokers_of_a_cluster_that_are_killed_in_turn_lose_nothing() -> Result<()> {
    let Some(mut brokers) = Brokers::start(3)? else {
        return Ok(());
    };
    let mut lab = lab(&brokers.servers(), "cluster", 4, &LITTLE)?;
    lab.producing.produce(30_000, 200, 20)?;
    lab.producing.flush()?;
    lab.join("m0")?;
    lab.join("m1")?;
    for broker in 0..3 {
        lab.finished(2000 * (broker as u64 + 1))?;
        brokers.kill(broker);
        sleep(Duration::from_secs(5));
        brokers.revive()?;
    }
    lab.producing.produce(2_000, 200, 20)?;
    lab.producing.flush()?;
    let seen = lab.judge()?;
    sound(&seen);
    println!("{} repeated", seen.repeated);
    Ok(())
}

#[test] // R1, R2
#[ignore = "takes long: the job `mix` runs it"]
fn the_only_broker_that_is_killed_and_started_again_loses_nothing() -> Result<()> {
    let Some(mut brokers) = Brokers::start(1)? else {
        return Ok(());
    };
    let mut lab = lab(&brokers.servers(), "only", 2, &LITTLE)?;
    lab.producing.produce(20_000, 100, 20)?;
    lab.producing.flush()?;
    lab.join("m0")?;
    for round in 1..3 {
        lab.finished(1000 * round)?;
        brokers.kill(0);
        sleep(Duration::from_secs(3));
        brokers.revive()?;
        println!(
            "the broker is back, {} are finished",
            lab.witness.finished()
        );
    }
    lab.producing.produce(1_000, 100, 20)?;
    lab.producing.flush()?;
    let seen = lab.judge()?;
    sound(&seen);
    println!("{} repeated", seen.repeated);
    lab.committed()?;
    println!("{}", lab.end("m0")?);
    Ok(())
}

#[test] // R1, R2
#[ignore = "takes long: the job `mix` runs it"]
fn what_a_transaction_aborts_is_not_handled_and_the_rest_is() -> Result<()> {
    scenario("transactions", 2, &[], |lab| {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", &lab.servers)
            .set("transactional.id", "tests")
            .create()?;
        let limit = Duration::from_secs(30);
        producer.init_transactions(limit)?;
        for transaction in 0..40 {
            producer.begin_transaction()?;
            for account in 0..25 {
                let account = format!("a{account}");
                let number = transaction / 2;
                // Those of the aborted ones would be the same postings again.
                let payload = format!("{number} ");
                let record = BaseRecord::to(&lab.topic).key(&account).payload(&payload);
                producer.send(record).map_err(|(error, _)| error)?;
            }
            producer.flush(limit)?;
            match transaction % 2 {
                0 => producer.commit_transaction(limit)?,
                _ => producer.abort_transaction(limit)?,
            }
        }
        lab.producing.produced = (0..25).map(|account| (format!("a{account}"), 20)).collect();
        lab.join("first")?;
        lab.finished(200)?;
        lab.kill("first")?;
        lab.join("second")?;
        lab.judge()?;
        sleep(Duration::from_secs(2));
        let seen = lab.judge()?;
        sound(&seen);
        assert_eq!(seen.done - seen.repeated, 500);
        println!("{}", lab.end("second")?);
        Ok(())
    })
}

#[test] // R1
#[ignore = "takes long: the job `mix` runs it"]
fn a_topic_that_is_made_again_is_read_from_its_start() -> Result<()> {
    scenario("again", 3, &["--slow", "slow"], |lab| {
        lab.producing.one("slow", 20)?;
        lab.producing.produce(3_000, 50, 20)?;
        lab.producing.flush()?;
        lab.join("first")?;
        lab.finished(3_000)?;
        lab.kill("first")?;
        let topic = lab.topic.clone();
        lab.delete(&topic)?;
        sleep(Duration::from_secs(5));
        lab.create(&topic, 2, &[])?;
        sleep(Duration::from_secs(2));
        // One that knows the topic before it was deleted goes on with its sequences.
        lab.producing = Producing::new(&lab.servers, &topic)?;
        for number in 0..1000 {
            lab.producing.one(&format!("b{}", number % 50), 20)?;
        }
        lab.producing.flush()?;
        lab.join("second")?;
        lab.finished(4_000)?;
        sound(&lab.witness.judge(&lab.producing.produced));
        println!("{}", lab.end("second")?);
        Ok(())
    })
}

/// Cuts a segment in front of the batch that has this offset.
fn cut(segment: &Path, offset: u64) -> Result<()> {
    let log = std::fs::read(segment)?;
    let (mut length, mut rest) = (0, &log[..]);
    // A batch has its first offset, its size after these two fields, and the rest.
    while let Some((first, behind)) = rest.split_first_chunk()
        && u64::from_be_bytes(*first) < offset
    {
        let (size, behind) = behind.split_first_chunk().context("a size")?;
        let size = u32::from_be_bytes(*size) as usize;
        length += 12 + size;
        rest = behind.get(size..).context("a batch")?;
    }
    println!("{} of {} bytes are left", length, log.len());
    Ok(File::options()
        .write(true)
        .open(segment)?
        .set_len(length as u64)?)
}

#[test] // R1
#[ignore = "takes long: the job `mix` runs it"]
fn a_log_that_is_cut_in_place_and_written_again_is_read_from_the_cut() -> Result<()> {
    let Some(mut brokers) = Brokers::start(1)? else {
        return Ok(());
    };
    // Then it ends before what is remembered of the first one, or beyond.
    let logs = [("shorter", 300), ("longer", 3_000)];
    let mut labs = Vec::new();
    for (name, _) in logs {
        let session = "session.timeout.ms=10000";
        let options = ["--set", session, "--slow", "slow", "--work", "0"];
        let mut lab = lab(&brokers.servers(), name, 1, &options)?;
        lab.producing.produce(500, 50, 20)?;
        lab.producing.flush()?;
        lab.join("first")?;
        lab.finished(500)?;
        lab.committed()?;
        lab.producing.one("slow", 20)?;
        lab.producing.produce(1_000, 50, 20)?;
        lab.producing.flush()?;
        lab.finished(1_500)?;
        let is_stored = |(_, offset, text): &(i32, Option<i64>, String)| {
            *offset == Some(500) && !text.is_empty()
        };
        lab.until("a commit", |lab| {
            lab.stored().is_ok_and(|stored| is_stored(&stored[0]))
        })?;
        sleep(Duration::from_millis(1500));
        lab.kill("first")?;
        lab.options.truncate(2);
        labs.push(lab);
    }
    brokers.kill(0);
    for (name, _) in logs {
        cut(&brokers.segment(0, &format!("{name}-0")), 500)?;
    }
    brokers.revive()?;
    for (lab, (name, others)) in labs.iter_mut().zip(logs) {
        // What the broker has lost is not produced again.
        lab.producing = Producing::new(&lab.servers, name)?;
        for number in 0..others {
            lab.producing.one(&format!("b{}", number % 50), 20)?;
        }
        lab.producing.flush()?;
        lab.join("second")?;
        lab.finished(1_500 + others)?;
        let seen = lab.witness.judge(&lab.producing.produced);
        sound(&seen);
        assert_eq!((seen.repeated, seen.done), (0, 1_500 + others));
        lab.committed()?;
        println!("{}", lab.end("second")?);
    }
    Ok(())
}

#[test] // R1, R6
#[ignore = "takes long: the job `mix` runs it"]
fn a_member_that_is_stopped_beyond_its_session_commits_nothing_when_it_wakes() -> Result<()> {
    scenario("stopped", 2, &["--work", "20"], |lab| {
        // For 24 seconds at least: each account has one at a time.
        lab.producing.produce(120_000, 100, 20)?;
        lab.producing.flush()?;
        lab.join("first")?;
        lab.finished(1_000)?;
        lab.join("second")?;
        lab.finished(2_000)?;
        lab.stop("first")?;
        sleep(Duration::from_secs(12));
        let offsets = |lab: &Lab| -> Result<Vec<_>> {
            let stored = lab.stored()?.into_iter();
            Ok(stored.map(|(_, offset, _)| offset).collect())
        };
        let overlaps = |lab: &Lab| {
            let violations = lab.witness.seen().violations.into_iter();
            violations.filter(|one| one.contains("OVERLAP")).count()
        };
        let mut before = offsets(lab)?;
        lab.go_on("first")?;
        let (woken, mut noticed) = (Instant::now(), None);
        while woken.elapsed() < Duration::from_secs(8) {
            sleep(Duration::from_millis(50));
            let now = offsets(lab)?;
            let is_later = now.iter().zip(&before).all(|(now, before)| now >= before);
            ensure!(is_later, "an old commit: {before:?}, and then {now:?}");
            before = now;
            if woken.elapsed() > Duration::from_secs(2) {
                noticed.get_or_insert_with(|| overlaps(lab));
            }
        }
        ensure!(lab.lag()? > 0, "it has woken too late to do harm");
        ensure!(noticed == Some(overlaps(lab)), "it begins more");
        let mut seen = lab.judge()?;
        // What ran when it was stopped goes on until it notices: only a fence in the resource prevents that.
        seen.violations
            .retain(|violation| !violation.contains("OVERLAP"));
        sound(&seen);
        lab.until("all is committed", |lab| {
            lab.lag().is_ok_and(|lag| lag == 0)
        })?;
        println!("{} overlaps, {} repeated", overlaps(lab), seen.repeated);
        Ok(())
    })
}

#[test] // R2
#[ignore = "takes long: the job `mix` runs it"]
fn a_member_that_is_cut_off_beyond_its_session_begins_nothing_until_it_is_back() -> Result<()> {
    let Some(mut brokers) = Brokers::start(1)? else {
        return Ok(());
    };
    // What is in memory takes 40 seconds.
    let options = ["--set", "group.protocol=consumer", "--work", "50"];
    let mut lab = lab(&brokers.servers(), "cut-off", 1, &options)?;
    lab.producing.produce(16_000, 20, 20)?;
    lab.producing.flush()?;
    // This one connects again when the group has long given its partition to the other one.
    let late = [
        "--set",
        "reconnect.backoff.ms=40000",
        "--set",
        "reconnect.backoff.max.ms=40000",
    ];
    lab.options.extend(late.map(Into::into));
    lab.join("late")?;
    lab.finished(500)?;
    lab.options.truncate(options.len());
    lab.options
        .extend(["--set", "reconnect.backoff.max.ms=500"].map(Into::into));
    lab.join("prompt")?;
    sleep(Duration::from_secs(3));
    assert_eq!(lab.witness.seen().active.len(), 1);
    brokers.kill(0);
    brokers.revive()?;
    let seen = lab.judge()?;
    sound(&seen);
    assert_eq!(seen.active.len(), 2);
    println!("{} repeated", seen.repeated);
    lab.committed()
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

#[test] // R1, R2
#[ignore = "takes long: the job `mix` runs it"]
fn a_random_mix_loses_nothing_and_keeps_the_order() -> Result<()> {
    let Some(mut brokers) = Brokers::start(1)? else {
        return Ok(());
    };
    let number = |name, default| {
        let text = std::env::var(name).ok();
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let minutes = number("KEYQUEUE_MIX_MINUTES", 10);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let seed = number("KEYQUEUE_MIX_SEED", now.as_secs());
    println!("{minutes} minutes; KEYQUEUE_MIX_SEED={seed}");
    let mut dice = Dice(seed.max(1));
    let protocols = [
        "session.timeout.ms=6000",
        "partition.assignment.strategy=range",
        "group.protocol=consumer",
    ];
    let protocol = protocols[dice.below(3) as usize];
    let mut lab = lab(&brokers.servers(), "mix", 6, &["--set", protocol])?;
    let (end, mut next) = (Instant::now() + Duration::from_secs(60 * minutes), 0);
    while Instant::now() < end {
        lab.producing.produce(dice.below(3_000), 200, 20)?;
        let members = lab.members();
        let any = members.get(dice.below(members.len().max(1) as u64) as usize);
        match (dice.below(20), any) {
            (0, _) => {
                brokers.kill(0);
                sleep(Duration::from_secs(dice.below(5)));
                brokers.revive()?;
            }
            (1..=4, Some(member)) => lab.kill(member)?,
            (5..=8, Some(member)) => _ = lab.end(member)?,
            (9..=11, Some(member)) => {
                lab.stop(member)?;
                sleep(Duration::from_millis(dice.below(2_000)));
                lab.go_on(member)?;
            }
            _ if members.len() < 4 => {
                next += 1;
                lab.join(&format!("m{next}"))?;
            }
            _ => {}
        }
        sleep(Duration::from_millis(dice.below(3_000)));
    }
    lab.join("last")?;
    lab.producing.flush()?;
    let seen = lab.judge()?;
    sound(&seen);
    println!("{protocol}, {next} members: {} repeated", seen.repeated);
    lab.committed()
}
