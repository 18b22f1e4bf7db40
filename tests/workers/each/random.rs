//! Random runs: each message is settled once, and those of a key in order.

use super::*;

/// What became of the messages of each key, in order.
type Settled = Mutex<BTreeMap<u64, List>>;

fn settle(settled: &Settled, key: u64, messages: &[u32]) {
    let mut settled = settled.lock().unwrap();
    settled.entry(key).or_default().extend(messages);
}

/// Something that may become of a message.
fn any_verdict(random: u32) -> Verdict<&'static str> {
    match random % 16 {
        0..8 => Verdict::Ok(Outcome::Done),
        8..10 => Verdict::Retry("made to fail"),
        10 => Verdict::RetryAfter("made to fail", ms(2)),
        11 => Verdict::GiveUp("made to give up"),
        12 => Verdict::Ok(Outcome::Later(Duration::ZERO)),
        13 => Verdict::Ok(Outcome::RequeueAfter(ms(3))),
        14 => Verdict::Ok(Outcome::RequeueRateLimited),
        _ => resume_unwind(Box::new("as intended")),
    }
}

/// Each message that was put is done, given up or left, once, and those of a key in order.
fn check(settled: Settled, queue: &Lists, put: &BTreeMap<u64, u32>, seed: u64) {
    let mut settled = settled.into_inner().unwrap();
    for left in queue.take_left() {
        settled
            .entry(left.key)
            .or_default()
            .extend(left.value.unwrap());
    }
    for (key, count) in put {
        let all = settled.remove(key).unwrap_or_default();
        let expected: List = (0..*count).collect();
        assert_eq!(all, expected, "key {key}, seed {seed}");
    }
    assert!(settled.is_empty(), "seed {seed}");
}

fn random_queue(random: &mut fastrand::Rng) -> (Arc<Lists>, MockClock) {
    let limiter = ItemExponentialFailure::new(ms(1), ms(4)).unwrap();
    let (waits, supersede, drains) = (random.bool(), random.bool(), random.bool());
    lists(|builder| {
        builder
            .rate_limiter(limiter)
            .adds_wait_for_retries(waits)
            .supersede_delays(supersede)
            .drain_delays(drains)
    })
}

#[test] // W11 S12 S13 S16 V3
fn each_message_of_a_random_run_that_is_cancelled_and_ended_is_settled_once_and_in_order() {
    let _watchdog = watchdog(60);
    for seed in 0..scaled(600) as u64 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let (queue, time) = random_queue(random);
        let (settled, mut put) = (Settled::default(), BTreeMap::<u64, u32>::new());
        let draws = Mutex::new(fastrand::Rng::with_seed(seed + 1_000_000));
        let work = async |job: ListJob<'static>| {
            let (yields, verdict) = {
                let mut draws = draws.lock().unwrap();
                (draws.u8(..3), draws.u32(..))
            };
            for _ in 0..yields {
                futures_lite::future::yield_now().await;
            }
            let verdict = any_verdict(verdict);
            if verdict == Verdict::Ok(Outcome::Done) {
                settle(&settled, *job.key(), &[message(&job)]);
            }
            verdict
        };
        let turn = random.usize(1..4);
        let workers = || {
            let workers = Workers::new(&queue)
                .concurrency(2)
                .max_retries(2)
                .each(turn);
            let workers = workers.on_give_up(|key, given_up: GivenUp<_, List>| {
                settle(&settled, *key, &given_up.value.unwrap());
            });
            Box::pin(workers.run_async(&work))
        };
        let mut run = workers();
        let step = |random: &mut fastrand::Rng, put: &mut BTreeMap<u64, u32>| {
            for _ in 0..random.u8(..4) {
                let (key, next) = (random.u64(..3), random.u32(1..4));
                let count = put.entry(key).or_default();
                let messages = (*count..*count + next).collect();
                if queue.put(key, messages).is_accepted() {
                    *count += next;
                }
            }
            time.advance(ms(random.u64(..3)));
            queue.fire_due();
        };
        for _ in 0..random.usize(1..60) {
            step(random, &mut put);
            if poll(&mut run, std::task::Waker::noop()).is_ready() {
                run = workers();
            }
            match random.u8(..16) {
                0 => {
                    drop(run);
                    run = workers();
                }
                1 if random.u8(..8) == 0 => _ = queue.shut_down(),
                2 if random.u8(..8) == 0 => _ = queue.shut_down_now(),
                _ => {}
            }
        }
        match random.u8(..4) {
            0 => drop(run),
            1 => {
                queue.shut_down();
                pollster::block_on(run).unwrap();
            }
            2 => {
                queue.shut_down_now();
                pollster::block_on(run).unwrap();
            }
            _ => {
                // A drain that is dropped, and perhaps delivers retries again until then.
                let mut drain = Box::pin(queue.drain_async());
                for _ in 0..random.u8(..40) {
                    if poll(&mut drain, std::task::Waker::noop()).is_ready() {
                        break;
                    }
                    if poll(&mut run, std::task::Waker::noop()).is_ready() {
                        run = workers();
                    }
                }
                drop((drain, run));
            }
        }
        check(settled, &queue, &put, seed);
    }
}

#[test] // W11 S12 S13 V3
fn each_message_of_racing_threads_is_settled_once_and_in_order() {
    let _watchdog = watchdog(120);
    for seed in 0..scaled(60) as u64 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let limiter = ItemExponentialFailure::new(ms(1), ms(2)).unwrap();
        let builder = WorkQueue::builder()
            .rate_limiter(limiter)
            .merge(merge::append);
        let queue = builder
            .adds_wait_for_retries(random.bool())
            .build()
            .unwrap();
        let queue: Arc<Lists> = Arc::new(queue);
        let settled = Arc::new(Settled::default());
        let given_up = Arc::clone(&settled);
        let workers = Workers::new(&queue)
            .concurrency(3)
            .max_retries(2)
            .each(random.usize(1..5));
        let workers = workers.on_give_up(move |key, report: GivenUp<_, List>| {
            settle(&given_up, *key, &report.value.unwrap());
        });
        let done = Arc::clone(&settled);
        let running = workers
            .spawn(move |job: ListJob<'_>| {
                let verdict = any_verdict(fastrand::u32(..));
                if verdict == Verdict::Ok(Outcome::Done) {
                    settle(&done, *job.key(), &[message(&job)]);
                }
                verdict
            })
            .unwrap();
        let put = thread::scope(|scope| {
            let put = |key| {
                let queue = &queue;
                move || {
                    let mut count = 0;
                    while count < 60 && queue.put(key, vec![count, count + 1]).is_accepted() {
                        count += 2;
                        thread::sleep(Duration::from_micros(fastrand::u64(..100)));
                    }
                    (key, count)
                }
            };
            let threads: Vec<_> = (0..3).map(|key| scope.spawn(put(key))).collect();
            if random.bool() {
                thread::sleep(Duration::from_millis(random.u64(..5)));
                queue.shut_down();
            }
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        queue.shut_down();
        running.join();
        check(Arc::into_inner(settled).unwrap(), &queue, &put, seed);
    }
}
