//! A worker function gives a key up, next to `Ok` and `?`.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Mutex;

use keyqueue::WorkQueue;
use keyqueue::worker::{Job, Reason, Workers};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// As if it were a request to a server, which fails now and then.
fn fetch(key: &str, attempt: u32) -> Result<String> {
    match key {
        "flaky" if attempt < 3 => Err("the connection is lost".into()),
        "huge" => Ok("70000".to_owned()),
        "page" => Ok("<html>".to_owned()),
        _ => Ok("200".to_owned()),
    }
}

fn refresh(cache: &Mutex<BTreeMap<String, u16>>, job: Job<'_, String>) -> Result<()> {
    if job.starts_with('/') {
        return job.give_up("a key has no slash in front".into());
    }
    let text = fetch(&job, job.attempt())?; // retried
    let Ok(number) = text.parse() else {
        return job.give_up(format!("{text} is no number").into());
    };
    cache.lock().unwrap().insert(job.clone(), number);
    Ok(())
}

#[test]
fn a_worker_gives_up_or_tries_again() -> std::result::Result<(), Box<dyn Error>> {
    let queue = WorkQueue::<String>::builder().drain_delays(true).build()?;
    let cache = Mutex::new(BTreeMap::new());
    let given_up = Mutex::new(Vec::new());
    let workers = Workers::new(&queue).max_retries(5).on_give_up(|key, end| {
        let end = (key.clone(), end.retries, end.reason);
        given_up.lock().unwrap().push(end);
    });
    std::thread::scope(|scope| {
        let _end = queue.shut_down_on_drop();
        scope.spawn(|| workers.run(|job| refresh(&cache, job)));
        for key in ["fine", "flaky", "huge", "page", "/"] {
            queue.entry_ref(key).add();
        }
        assert!(queue.shut_down_with_drain().is_nothing());
    });

    let fetched = ["fine", "flaky"].map(|key| (key.to_owned(), 200));
    assert_eq!(cache.into_inner()?, BTreeMap::from(fetched));
    let mut given_up = given_up.into_inner()?;
    given_up.sort_by(|a, b| a.0.cmp(&b.0));
    let not_retried = |key: &str| (key.to_owned(), 0, Reason::GiveUp);
    assert_eq!(given_up, ["/", "huge", "page"].map(not_retried));
    Ok(())
}
