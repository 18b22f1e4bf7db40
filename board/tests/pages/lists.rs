//! Lists that are sorted, grouped, and have a way back.

use serde_json::json;

use crate::common::{Answer, HOUR, Site, assert_has, listed};

async fn list(site: &Site, path: &str) -> Vec<String> {
    listed(&site.json(&format!("/queues/q/mails/{path}")).await)
}

#[tokio::test] // X2
async fn lists_are_sorted_by_age_due_time_attempts_and_error() {
    let site = Site::new();
    let queue = site.queue();
    queue.add_all([
        "z/bad-1".into(),
        "a/bad-2".into(),
        "m/bad-3".into(),
        "a/fail".into(),
    ]);
    site.work().await;
    for (key, hours) in [("a/c", 3), ("a/a", 1), ("a/b", 2)] {
        queue.add_after(key.into(), hours * HOUR);
    }
    for (path, keys) in [
        ("keys?sort=due", &["a/fail", "a/a", "a/b", "a/c"][..]),
        ("keys?sort=due&from=1", &["a/a", "a/b", "a/c"]),
        ("keys?sort=due&search=a/&from=3", &["a/c"]),
        ("keys?sort=due&state=queued", &[]),
        ("dead", &["z/bad-1", "a/bad-2", "m/bad-3"]),
        ("dead?sort=age", &["m/bad-3", "a/bad-2", "z/bad-1"]),
        ("dead?sort=error", &["a/bad-2", "m/bad-3", "z/bad-1"]),
        ("dead?sort=error&from=2", &["z/bad-1"]),
    ] {
        assert_eq!(list(&site, path).await, keys, "{path}");
    }
    let unknown = site.get("/queues/q/mails/dead?sort=size").await;
    unknown.has("Dead letters, the oldest first");
    for sort in ["error", "attempts"] {
        let keys = list(&site, &format!("keys?sort={sort}")).await;
        assert_eq!((keys.len(), &*keys[0]), (4, "a/fail"), "{sort}");
    }
    queue.add_all(["1".into(), "2".into()]);
    let old = queue.try_get().unwrap();
    let held = async |from: f64| {
        let keys = site.json("/queues/q/mails/keys?state=processing").await;
        keys["rows"][0]["held"].as_f64().unwrap() > from
    };
    while !held(0.01).await {}
    let _new = queue.try_get().unwrap();
    let keys = list(&site, "keys?sort=age&state=processing").await;
    assert_eq!((keys.len(), &keys[0]), (2, &*old));
    let page = site.get("/queues/q/mails/keys?sort=due&search=a").await;
    page.has("aria-sort=\"ascending\" | ?search=a&amp;sort=age | name=\"sort\" value=\"due\"");
}

#[tokio::test] // X2
async fn letters_are_grouped_by_error_whatever_numbers_and_keys_it_has() {
    let site = Site::new();
    let keys = (0..20).map(|n| format!("a/bad-{n}"));
    site.queue().add_all(keys.chain(["bad".into()]));
    site.work().await;
    let errors = site.json("/queues/q/mails/dead?group=error").await;
    assert_has(
        &errors["rows"][0],
        &json!({ "error": "no such address: …", "count": 20 }),
    );
    assert_eq!(errors["rows"][1]["error"], "no such address: bad");
    assert_has(&errors, &json!({ "count": 2, "is_partial": false }));
    let page = site.get("/queues/q/mails/dead?group=error").await;
    page.has("?search=no%20such%20address%3A\" | Letter by letter");
    page.lacks("; the first");
    let one = site
        .json("/queues/q/mails/dead?group=error&search=bad-7")
        .await;
    assert_eq!(
        (&one["count"], &one["rows"][0]["count"]),
        (&1.into(), &1.into())
    );
    // The first line of an error, which has a part of the key.
    let lines = ('a'..='z').flat_map(|one| ['x', 'y'].map(|two| format!("{one}{two}\nbad")));
    site.queue().add_all(lines);
    site.work().await;
    let errors = site.json("/queues/q/mails/dead?group=error").await;
    assert_eq!(errors["count"], 54);
    let page = site.get("/queues/q/mails/dead?group=error").await;
    page.has("; the first 50 of 54");
}

#[tokio::test] // X2
async fn a_page_has_a_link_to_the_one_before() {
    let site = Site::new();
    let names = |kind| (0..170).map(move |n| format!("a/{kind}-{n:03}"));
    site.queue().add_all(names("bad"));
    site.work().await;
    site.queue().add_all(names("key"));
    for path in "dead dead?sort=error keys keys?sort=error&search=key".split(' ') {
        let mut page = site.get(&format!("/queues/q/mails/{path}")).await;
        page.lacks("rel=\"prev\"");
        let mut seen = Vec::new();
        let rows = |page: &Answer| page.text.matches("data-label=\"Key\"").count();
        let follow = async |page: &Answer, rel: &str| {
            let link = page.text.split(&format!("rel=\"{rel}\" href=\"")).nth(1)?;
            let query = link.split('"').next()?.replace("&amp;", "&");
            let list = path.split('?').next()?;
            Some(site.get(&format!("/queues/q/mails/{list}{query}")).await)
        };
        while let Some(next) = follow(&page, "next").await {
            seen.push(std::mem::replace(&mut page, next));
        }
        // A page of keys may have up to 15 more than 50.
        assert!((2..=4).contains(&seen.len()), "{path}: {}", seen.len());
        while let Some(before) = seen.pop() {
            page = follow(&page, "prev").await.unwrap();
            let first = |page: &Answer| {
                page.text
                    .split("<tbody>")
                    .nth(1)
                    .map(|rows| rows[..200].to_owned())
            };
            assert_eq!(
                (rows(&page), first(&page)),
                (rows(&before), first(&before)),
                "{path}"
            );
        }
        page.lacks("rel=\"prev\"");
    }
    // Beyond the end there is a way back, and a link from elsewhere leads to the first page.
    let page = site.get("/queues/q/mails/dead?from=99999").await;
    page.has("There is none from here on. | >First page</a>");
}
