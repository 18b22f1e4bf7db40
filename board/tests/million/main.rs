//! A million keys: a page takes bounded time and memory. These tests are a program apart, because the heap counts what all tests do.

#[allow(dead_code, reason = "this program uses a part of it")]
#[path = "../pages/common.rs"]
mod common;

use std::time::{Duration, Instant};

use http::StatusCode;
use http_body_util::BodyExt;
use rig::heap::held;

use crate::common::{HOUR, Site};

#[global_allocator]
static HEAP: rig::heap::CountingHeap = rig::heap::CountingHeap;

const MILLION: u64 = 1_000_000;

#[tokio::test] // X4
async fn a_page_of_a_million_keys_takes_bounded_time_and_memory() {
    let site = Site::with(|builder| builder.name("mails"));
    let queue = site.queue();
    (0..MILLION).for_each(|n| _ = queue.add(format!("key-{n:07}")));
    (0..1000).for_each(|n| _ = queue.add_after(format!("later-{n}"), HOUR));
    let _held = queue.try_get().unwrap();
    let paths = [
        "/q/mails",
        "/q/mails/keys",
        "/q/mails/keys?state=delayed",
        "/q/mails/keys?search=key-0999999",
        "/q/mails/keys?search=nothing",
        "/q/mails/keys?sort=age",
        "/q/mails/keys?sort=error&from=9999",
        "/q/mails/dead",
        "",
    ];
    let mut slowest = (Duration::ZERO, "");
    // Those that no other viewer has looked for.
    for path in paths {
        let began = Instant::now();
        site.get(&format!("/queues{path}")).await;
        println!("{path:?}: {:?}", began.elapsed());
        slowest = slowest.max((began.elapsed(), path));
    }
    let before = held();
    for _ in 0..3 {
        for path in paths {
            let began = Instant::now();
            let page = site.get(&format!("/queues{path}")).await;
            let took = began.elapsed();
            assert_eq!(page.status, StatusCode::OK);
            assert!(
                page.text.len() < 100_000,
                "{path}: {} bytes",
                page.text.len()
            );
            slowest = slowest.max((took, path));
        }
    }
    let grown = held() - before;
    println!("the slowest page: {slowest:?}; memory grown by {grown} bytes");
    assert!(grown < 200_000, "{grown} bytes");
    // A generous bound, because tests run beside others: the pages stop looking after 150 ms.
    assert!(slowest.0 < Duration::from_secs(5), "{slowest:?}");
    let mut all = site.json("/queues/q/mails").await;
    // On a busy machine a look may run out of time, and says so. Later there is another one.
    while all["keys"]["is_partial"] == true {
        tokio::time::sleep(Duration::from_millis(500)).await;
        all = site.json("/queues/q/mails").await;
    }
    assert_eq!(all["keys"]["queued"], MILLION - 1);
    assert_eq!(all["keys"]["delayed"], 1000);
    // By `next`, a search gets to its end.
    let found = site.all("keys?search=key-0999999&", 50).await;
    assert_eq!(found, ["key-0999999"]);
}

/// The processor time that this process has used.
#[cfg(target_os = "linux")]
fn used() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks = stat.rsplit(')').next().unwrap().split_whitespace();
    // User and system time, in hundredths of a second on Linux.
    let ticks: u64 = ticks
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(10 * ticks)
}

/// `cargo test --release -p keyqueue-board --all-features --test million -- --ignored --nocapture viewer`
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")] // X4
#[ignore = "measures the processor time of the process for minutes; `.ci/run ignored` runs it"]
async fn one_viewer_uses_less_than_a_hundredth_of_a_processor() {
    // A look at a million keys is seldom: the time for several of them, so that one more or less does not count.
    for (keys, seconds) in [(1000, 30), (MILLION, 90)] {
        // Without a name: the reports of the metrics use processor time, too.
        let site = Site::with(|builder| builder.timing(true));
        (0..keys).for_each(|n| _ = site.queue().add(format!("key-{n:07}")));
        for path in ["/q/mails", "/q/mails/keys?state=delayed"] {
            let page = site.stream(&format!("/queues{path}"), "identity").await;
            let mut body = page.into_body();
            // The first looks come more often: how long one takes is not known yet.
            let watch = async { while body.frame().await.is_some() {} };
            let _ = tokio::time::timeout(Duration::from_secs(20), watch).await;
            let before = used();
            let watch = async { while body.frame().await.is_some() {} };
            let _ = tokio::time::timeout(Duration::from_secs(seconds), watch).await;
            let share = (used() - before).as_secs_f64() / seconds as f64;
            println!(
                "{keys} keys, {path:?}: {:.2} % of a processor",
                100.0 * share
            );
            assert!(share < 0.01, "{keys} keys, {path:?}: {share}");
        }
        let before = used();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let share = (used() - before).as_secs_f64() / seconds as f64;
        println!(
            "{keys} keys, nobody looks: {:.2} % of a processor",
            100.0 * share
        );
    }
}
