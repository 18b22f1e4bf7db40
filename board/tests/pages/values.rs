//! A queue whose keys carry values.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use keyqueue::worker::{DeadLetters, Job, Verdict, Workers};
use keyqueue::{WorkQueue, merge};
use keyqueue_board::{Board, Shown};

use crate::common::{HOUR, Site};

#[tokio::test] // X1 X2 X3 V2
async fn values_are_shown_and_a_queued_key_is_dropped_with_its_own() {
    let builder = WorkQueue::builder().merge(merge::append);
    let queue: Arc<WorkQueue<String, Vec<u32>>> = Arc::new(builder.build().unwrap());
    let letters = DeadLetters::new(10).unwrap();
    queue.put("bad".into(), vec![7, 8]);
    let workers = Workers::new(&queue).concurrency(1).dead_letters(&letters);
    let run = workers.run_async(async |_: Job<'_, String, Vec<u32>>| Verdict::GiveUp("no"));
    let idle = async {
        while letters.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! { _ = run => {} () = idle => {} }
    queue.put("a".into(), vec![1, 2]);
    queue.entry("later".to_owned()).after(HOUR).put(vec![3]);

    let shown = Shown::display(&queue).values(Some(&letters), fmt::Debug::fmt);
    let board = Board::new().allow(|_| Some("alice".into()));
    board.add("mails", shown).unwrap();
    let site = Site::of(&board);
    site.get("/queues/q/mails/keys")
        .await
        .has("[1, 2] | [3] | Run now | Drop");
    site.get("/queues/q/mails/dead").await.has("[7, 8]");
    let found = site.json("/queues/q/mails/dead?search=8]").await;
    assert_eq!(found["rows"].as_array().unwrap().len(), 1);

    let (id, at) = site.key_of("queued").await;
    let response = site.post(&format!("action=drop_key&id={id}&at={at}")).await;
    assert_eq!(response.status, StatusCode::SEE_OTHER);
    assert!(queue.try_get().is_err());
    let (id, at) = site.key_of("delayed").await;
    site.post(&format!("action=run_now&id={id}&at={at}")).await;
    assert_eq!(queue.try_get().unwrap().value(), &[3]);
    site.post("action=put_back&letter=0").await;
    assert_eq!(queue.try_get().unwrap().value(), &[7, 8]);
}
