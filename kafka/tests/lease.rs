//! Members of a group whose session only the brokers know, with brokers that are slow or gone: on librdkafka's mock cluster.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{
    Cluster, Gate, Notes, Run, cluster, create, fence, is_committed, of_brokers, produce,
    produce_to, round_trip, run, two_brokers, until,
};
use keyqueue::limiter::RateLimiter;
use keyqueue_kafka::Place;
use tokio::time::sleep;

/// A member with one record, which runs until it is told to go.
async fn one_that_runs() -> (Cluster, Run, Gate) {
    let cluster = cluster(1);
    let (begun, go) = (Notes::default(), Gate::default());
    let (notes, gate) = (begun.clone(), go.clone());
    let run = run(of_brokers(&cluster), move |_| {
        let (notes, gate) = (notes.clone(), gate.clone());
        async move {
            notes.add("begun");
            gate.pass().await;
        }
    });
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    until("it runs", || begun.len() == 1).await;
    (cluster, run, go)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn an_idle_member_that_is_cut_off_ends_within_its_grace() {
    let cluster = cluster(1);
    let run = run(of_brokers(&cluster), |_| async {});
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    until("it is committed", || is_committed(&run.consumer, 1)).await;
    // The lease ends, and nothing renews it: that would wait for brokers, and the end for that.
    sleep(Duration::from_millis(700)).await;
    cluster.broker_down(1).expect("a broker");
    sleep(Duration::from_millis(700)).await;
    let ended = tokio::time::timeout(Duration::from_secs(10), run.end()).await;
    let ended = ended.expect("it ends").expect("no error");
    assert_eq!((ended.finished, ended.uncommitted), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2
async fn the_first_record_after_a_pause_has_a_commit_of_its_own() {
    let cluster = cluster(1);
    // No other one is due.
    let builder = of_brokers(&cluster).commit_every(Duration::from_secs(3600));
    let run = run(builder, |_| async {});
    for finished in 1..=2 {
        produce(&cluster, &[(Some("a"), Some("x"))]).await;
        until("it is finished", || {
            run.consumer.status().finished == finished
        })
        .await;
        sleep(Duration::from_millis(700)).await;
    }
    let ended = run.end().await.expect("no error");
    assert_eq!((ended.finished, ended.uncommitted), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn commits_that_brokers_are_slow_to_take_do_not_pile_up() {
    let (cluster, run, go) = one_that_runs().await;
    round_trip(&cluster, 1, Duration::from_secs(1));
    // A hundred and more times the lease should be renewed, which is over whenever a commit is taken.
    sleep(Duration::from_secs(3)).await;
    go.open();
    // Not behind a hundred others, each of which takes a second.
    until("it is committed", || is_committed(&run.consumer, 1)).await;
    run.end().await.expect("no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn the_end_does_not_wait_for_a_commit_that_waits_for_brokers() {
    let (cluster, run, go) = one_that_runs().await;
    cluster.broker_down(1).expect("a broker");
    sleep(Duration::from_secs(1)).await;
    go.open();
    until("it is finished", || run.consumer.status().finished == 1).await;
    // librdkafka waits for a coordinator for 45 s.
    let ended = tokio::time::timeout(Duration::from_secs(25), run.end()).await;
    let ended = ended.expect("it ends").expect("no error");
    assert_eq!((ended.finished, ended.uncommitted), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn each_partition_whose_last_commit_has_no_reply_is_uncommitted() {
    let cluster = cluster(2);
    // No commit is due, and no renewal, which would commit what is finished before the second record comes.
    let hour = Duration::from_secs(3600);
    let builder = of_brokers(&cluster)
        .commit_every(hour)
        .brokers_session(hour);
    let run = run(builder, |_| async {});
    for partition in 0..2 {
        produce_to(&cluster, partition, &[(Some("a"), Some("x"))]).await;
    }
    until("both are finished", || run.consumer.status().finished == 2).await;
    cluster.broker_down(1).expect("a broker");
    let ended = run.end().await.expect("no error");
    assert_eq!((ended.finished, ended.uncommitted), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2
async fn others_begin_while_an_assignment_is_read() {
    let cluster = two_brokers();
    // The first of each half of the partitions, and the group, are on a broker that is fast.
    let leader = |partition| if partition % 10 == 0 { 1 } else { 2 };
    create(&cluster, "topic", &(0..20).map(leader).collect::<Vec<_>>());
    let settings = || {
        let session = Duration::from_secs(2);
        of_brokers(&cluster).concurrency(1).brokers_session(session)
    };
    let work = |_| sleep(Duration::from_millis(10));
    let (first, second) = (run(settings(), work), run(settings(), work));
    let count = |run: &Run| run.consumer.status().partitions.len();
    until("each has its half", || {
        (count(&first), count(&second)) == (10, 10)
    })
    .await;
    let own = first.consumer.status().partitions[0].partition;
    produce_to(&cluster, own, &vec![(Some("a"), Some("x")); 1500]).await;
    round_trip(&cluster, 2, Duration::from_millis(500));
    second.end().await.expect("no error");
    // To read where the nine others begin takes more than four seconds, and the lease one.
    let finished = || first.consumer.status().finished;
    let (mut seen, mut since, mut longest) = (finished(), Instant::now(), Duration::ZERO);
    until("it has all", || {
        if seen != finished() {
            (seen, since) = (finished(), Instant::now());
        }
        longest = longest.max(since.elapsed());
        count(&first) == 20
    })
    .await;
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    let ended = first.end().await.expect("no error");
    assert!(ended.left > 0, "{ended}");
}

/// A limiter that is slow to forget, which the end of a partition has it do for each record that has failed.
struct Slow(Arc<AtomicBool>);

impl RateLimiter<Place> for Slow {
    fn when(&self, _: &Place) -> Duration {
        Duration::from_millis(1)
    }

    fn forget(&self, _: &Place) {
        if self.0.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn num_requeues(&self, _: &Place) -> u32 {
        0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn nothing_begins_after_a_fatal_error() {
    let cluster = cluster(2);
    for partition in 0..2 {
        let records = ["a", "b", "c", "d", "e"].map(|key| (Some(key), Some("x")));
        produce_to(&cluster, partition, &records).await;
    }
    let (begun, is_slow) = (Notes::default(), Arc::new(AtomicBool::new(false)));
    let (notes, have_failed) = (begun.clone(), Arc::new(AtomicBool::new(false)));
    let all_have_failed = Arc::clone(&have_failed);
    let builder = common::builder(&cluster).set("group.instance.id", "one");
    let builder = builder.concurrency(2).backoff(Slow(Arc::clone(&is_slow)));
    let slow = Arc::clone(&is_slow);
    let run = run(builder, move |record| {
        // Those of the partition that ends first, and then, if they are cancelled too early, the others.
        let is_first = record.partition() == 0 && have_failed.load(Ordering::Relaxed);
        let begins = is_first || slow.load(Ordering::Relaxed);
        let notes = notes.clone();
        async move {
            if begins {
                notes.add("begun");
                sleep(Duration::from_secs(3600)).await;
            }
            Err::<(), _>("no")
        }
    });
    let failing = || {
        let partitions = run.consumer.status().partitions;
        partitions.iter().map(|at| at.failing).sum::<usize>()
    };
    until("all have failed", || failing() == 10).await;
    all_have_failed.store(true, Ordering::Relaxed);
    until("two run", || begun.len() == 2).await;
    is_slow.store(true, Ordering::Relaxed);
    fence(&cluster);
    run.ended().await.expect_err("it is fenced");
    assert_eq!(begun.len(), 2);
}
