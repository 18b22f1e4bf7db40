//! Dead letters that several processes put back, on a real broker, with the witness.

mod common;

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use common::{scenario, sound};
use keyqueue_kafka::Consumer;
use keyqueue_kafka::dead_letter::{self, LETTER, Letters};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

/// What a process that is killed before it commits leaves: a record and a mark in a transaction that is open.
fn begin_to_put_back(servers: &str, letters: &Letters, id: &str) -> Result<BaseProducer> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("transactional.id", id)
        .create()?;
    producer.init_transactions(Duration::from_secs(30))?;
    producer.begin_transaction()?;
    let first = letters.read()?.remove(0);
    let headers = OwnedHeaders::new().insert(Header {
        key: LETTER,
        value: Some(&first.name),
    });
    let record = BaseRecord::to("back").key("bad").payload("0 ");
    producer.send(record).map_err(|(error, _)| error)?;
    let mark = BaseRecord::<str, str>::to("back-dead").partition(0);
    let mark = mark.key("bad").headers(headers);
    producer.send(mark).map_err(|(error, _)| error)?;
    producer.flush(Duration::from_secs(30))?;
    Ok(producer)
}

#[test] // R8
fn a_letter_that_many_put_back_at_the_same_time_is_put_back_once() -> Result<()> {
    let options = ["--poison", "bad", "--retries", "0", "--dead", "back-dead"];
    scenario("back", 1, &options, |lab| {
        lab.create("back-dead", 1, &[])?;
        for _ in 0..3 {
            lab.producing.one("bad", 20)?;
            lab.producing.produce(100, 50, 20)?;
        }
        lab.producing.flush()?;
        lab.join("first")?;
        lab.finished(303)?;
        println!("{}", lab.end("first")?);
        lab.dead_letters("back-dead", 3)?;
        let letters = || -> Result<Letters> {
            let consumer = Consumer::builder(&lab.servers, &lab.group);
            let consumer = consumer
                .topics(["back"])
                .dead_letters("back-dead")
                .build()?;
            consumer.dead_letters().context("there is a topic")
        };
        // While a transaction of another program is open, nobody knows which marks are behind it.
        let other = begin_to_put_back(&lab.servers, &letters()?, "other")?;
        let refused = letters()?.put_back(&[1]).expect_err("it is open");
        println!("{refused}");
        other.abort_transaction(Duration::from_secs(30))?;
        drop(begin_to_put_back(
            &lab.servers,
            &letters()?,
            "keyqueue-back-dead",
        )?);
        let all = (0..6).map(|_| letters()).collect::<Result<Vec<_>>>()?;
        let (mut back, mut refused) = (0, 0);
        thread::scope(|scope| {
            let put_back = |letters: &Letters| {
                let mut refused = 0;
                loop {
                    match letters.put_back(&[1, 2, 3]) {
                        Ok(back) => return (back, refused),
                        // Another one has begun since, or the brokers are busy with what was left.
                        Err(error) => {
                            println!("{error}");
                            refused += 1;
                        }
                    }
                }
            };
            let all: Vec<_> = all
                .iter()
                .map(|letters| scope.spawn(move || put_back(letters)))
                .collect();
            for one in all {
                let (of_one, refusals) = one.join().expect("no panic");
                back += of_one.into_iter().filter(|is_back| *is_back).count();
                refused += refusals;
            }
        });
        println!("{refused} were refused, and tried again");
        ensure!(back == 3, "{back} were put back");
        for letters in &all {
            ensure!(letters.put_back(&[1, 2, 3])? == [false; 3], "once more");
        }
        ensure!(letters()?.read()?.is_empty(), "letters are left");
        // It is mended.
        lab.options.truncate(2);
        lab.join("second")?;
        lab.until("repeats", |lab| lab.witness.seen().repeated >= 3)?;
        thread::sleep(Duration::from_secs(1));
        println!("{}", lab.end("second")?);
        let seen = lab.judge()?;
        sound(&seen);
        assert_eq!((seen.repeated, seen.done), (3, 303));
        Ok(())
    })
}

/// Writes letters of this many records of a partition to the same one of a topic of letters.
fn write(servers: &str, topic: &str, partition: i32, count: usize) -> Result<()> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .create()?;
    let of = partition.to_string();
    for offset in 0..count {
        let offset = offset.to_string();
        let headers = [
            (dead_letter::TOPIC, "again"),
            (dead_letter::PARTITION, &*of),
            (dead_letter::OFFSET, &*offset),
            (dead_letter::GROUP, "group"),
        ];
        let headers = headers.map(|(key, value)| Header {
            key,
            value: Some(value),
        });
        let headers = headers
            .into_iter()
            .fold(OwnedHeaders::new(), OwnedHeaders::insert);
        let letter = BaseRecord::<str, str>::to(topic).partition(partition);
        let sent = producer.send(letter.headers(headers));
        sent.map_err(|(error, _)| error)?;
    }
    producer.flush(Duration::from_secs(30))?;
    Ok(())
}

#[test] // R8
fn a_topic_of_letters_that_was_made_again_has_other_letters() -> Result<()> {
    scenario("again", 1, &[], |lab| {
        let topic = "again-dead";
        lab.create(topic, 3, &[])?;
        for (partition, count) in [(0, 2), (1, 1), (2, 3)] {
            write(&lab.servers, topic, partition, count)?;
        }
        let consumer = Consumer::builder(&lab.servers, "group");
        let consumer = consumer.topics(["again"]).dead_letters(topic).build()?;
        let letters = consumer.dead_letters().context("there is a topic")?;
        ensure!(letters.read()?.len() == 6, "six letters");
        // Nobody looks until the new one is longer or as long, and has fewer partitions.
        lab.delete(topic)?;
        lab.create(topic, 2, &[])?;
        write(&lab.servers, topic, 0, 5)?;
        write(&lab.servers, topic, 1, 1)?;
        thread::sleep(Duration::from_secs(1));
        let read = letters.read()?;
        let numbers: Vec<_> = read.iter().map(|letter| letter.number).collect();
        ensure!(numbers == [7, 8, 9, 10, 11, 12], "{numbers:?}");
        ensure!(letters.discard(&numbers)? == [true; 6], "all are dropped");
        ensure!(letters.read()?.is_empty(), "no letter is left");
        // As long as before, with one partition.
        lab.delete(topic)?;
        lab.create(topic, 1, &[])?;
        write(&lab.servers, topic, 0, 1)?;
        thread::sleep(Duration::from_secs(1));
        ensure!(letters.read()?.len() == 1, "one letter");
        lab.delete(topic)?;
        lab.create(topic, 1, &[])?;
        write(&lab.servers, topic, 0, 1)?;
        thread::sleep(Duration::from_secs(1));
        let read = letters.read()?;
        ensure!(read.len() == 1 && read[0].number == 14, "{read:?}");
        Ok(())
    })
}
