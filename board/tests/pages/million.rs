//! A million keys: a page takes bounded time and memory.

use std::time::{Duration, Instant};

use http::StatusCode;
use rig::heap::held;

use crate::common::{HOUR, Site};

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
        "/q/mails/dead",
        "",
    ];
    let mut slowest = (Duration::ZERO, "");
    for path in paths {
        site.get(&format!("/queues{path}")).await; // threads and caches
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
    let all = site.json("/queues/q/mails").await;
    assert_eq!(all["keys"]["queued"], MILLION - 1);
    assert_eq!(all["keys"]["delayed"], 1000);
    // By `next`, a search gets to its end.
    let (mut from, mut found, mut pages) = (0, 0, 0);
    loop {
        let page = site
            .json(&format!(
                "/queues/q/mails/keys?search=key-0999999&from={from}"
            ))
            .await;
        found += page["rows"].as_array().unwrap().len();
        pages += 1;
        let Some(next) = page["next"].as_u64() else {
            break;
        };
        from = next;
    }
    println!("a search through all keys: {pages} pages");
    assert_eq!(found, 1);
}
