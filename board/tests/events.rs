//! Each action is an event. This test is a program apart: a thread of another test that meets an event first, without a
//! subscriber, turns it off for all threads, as long as there is only one subscriber.

#[allow(dead_code, reason = "this program uses a part of it")]
#[path = "pages/common.rs"]
mod common;

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::common::Site;

/// Collects the events with target `keyqueue_board`, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl<S: tracing::Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "keyqueue_board" {
            let mut text = Text(event.metadata().level().to_string());
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
    }
}

#[tokio::test] // X3
async fn each_action_is_an_event_with_who_asked_what() {
    let log = Log::default();
    let _subscribed =
        tracing::subscriber::set_default(tracing_subscriber::registry().with(log.clone()));
    let site = Site::new();
    site.queue().add("a/bad".into());
    site.work().await;
    site.post_as("bob", "action=put_back&letter=0").await;
    site.post_as("bob", "action=drain").await;
    site.post_as("alice", "action=drop_letter&letter=5").await;
    let events = std::mem::take(&mut *log.0.lock().unwrap());
    let [done, refused, failed] = &events[..] else {
        panic!("{events:?}")
    };
    for part in
        "INFO who=\"bob\" action=\"put_back\" queue=\"mails\" subject=\"a/bad\" count=1".split(' ')
    {
        assert!(done.contains(part), "{part}: {done}");
    }
    assert!(
        refused.contains("WARN") && refused.contains("not allowed"),
        "{refused}"
    );
    assert!(
        failed.contains("WARN") && failed.contains("who=\"alice\""),
        "{failed}"
    );
}
