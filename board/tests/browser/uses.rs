//! Looking and acting, with and without scripts, and in two browsers at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use keyqueue::State;
use thirtyfour::By;

use crate::driver::{Browser, Setup, start};
use crate::site::Site;

async fn goes_through_all_views(site: &Site, browser: &Browser) {
    browser.open(&site.at("")).await;
    browser.shows("mails").await;
    browser.click("mails").await;
    browser.shows("Workers hold no key.").await;
    browser.shows("Keys in hand").await;
    browser.click("Keys").await;
    browser.shows("acme/fails").await;
    browser.shows("no route to host").await;
    browser.click("acme/fails").await;
    browser.shows("A key of mails").await;
    browser.click("Dead letters").await;
    browser.shows("3 of at most 100000 letters").await;
    browser.click("wayne/bad-3").await;
    browser.shows("no such address: wayne/bad-3").await;
    browser.click("All queues").await;
    browser.shows("Queues of this process").await;
}

#[tokio::test(flavor = "multi_thread")] // X2
async fn each_view_is_reached_by_links() {
    let (_driver, site, browser) = start!();
    goes_through_all_views(&site, &browser).await;
    browser.open(&site.at("/q/mails/keys")).await;
    let search = thirtyfour::By::Css("#search");
    browser
        .0
        .find(search)
        .await
        .unwrap()
        .send_keys("zebra")
        .await
        .unwrap();
    browser.click("Search").await;
    browser.shows("There is no such key").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}

async fn acts(site: &mut Site, browser: &Browser) {
    site.queue.pause().unwrap(); // what is put back stays queued
    browser.open(&site.at("/q/mails/dead")).await;
    browser.click("Put back").await;
    browser.shows("1 put back into the queue.").await;
    assert_eq!(site.queue.state("acme/bad-1"), Some(State::Queued));
    browser.click("Drop").await;
    browser
        .shows("Drop the dead letter of “wayne/bad-3”?")
        .await;
    browser.click("No, go back").await;
    browser.shows("2 of at most").await;
    browser.sure("Drop").await;
    browser.shows("1 dropped.").await;
    assert_eq!(site.letters.len(), 1);
    browser.sure("Put back all").await;
    browser.shows("1 put back").await;
    browser.shows("There is none").await;

    let delayed = site.at("/q/mails/keys?state=delayed");
    browser.open(&delayed).await;
    browser.click("Run now").await;
    browser.shows("The key acme/fails is queued now.").await;
    assert_eq!(site.queue.state("acme/fails"), Some(State::Queued));

    browser.open(&site.at("/q/mails")).await;
    browser.click("Resume").await;
    browser.shows("The queue goes on.").await;
    rig::eventually("all were tried", || site.letters.len() == 2);
    browser.click("Pause").await;
    browser.shows("The queue is paused.").await;
    assert!(site.queue.paused() == Some(true));

    site.queue.add("globex/1".into());
    browser.open(&site.at("/q/mails")).await;
    browser.click("Hold").await;
    browser.shows("The group globex is held.").await;
    assert!(
        site.queue
            .groups::<String>()
            .iter()
            .any(|group| group.held_for.is_some())
    );
    browser.click("Release").await;
    browser.shows("The group globex is released.").await;

    browser.sure("Drain").await;
    browser.shows("The queue is draining").await;
    rig::eventually("it drains", || site.queue.is_shutting_down());
    site.queue.resume();
}

#[tokio::test(flavor = "multi_thread")] // X3
async fn each_action_is_done_by_its_button() {
    let (_driver, mut site, browser) = start!();
    acts(&mut site, &browser).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X2 X3
async fn all_of_it_works_without_scripts() {
    let (_driver, mut site, browser) = start!(without_scripts: true);
    goes_through_all_views(&site, &browser).await;
    acts(&mut site, &browser).await;
    browser.open(&site.at("/q/mails?refresh=1")).await;
    browser.shows("shut down").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X2
async fn a_page_changes_while_it_is_looked_at() {
    let (_driver, mut site, browser) = start!();
    site.stop_workers();
    browser.open(&site.at("/q/mails")).await;
    browser.shows("live").await;
    browser.run("document.body.dataset.same = 'page'").await;
    site.queue.add("acme/new".into());
    let held = site.queue.get().unwrap();
    browser.shows("acme/new").await;
    drop(held);
    browser.shows("Workers hold no key.").await;
    // Unless somebody has said that it must not.
    browser.click("Pause updates").await;
    browser.shows("paused, as of").await;
    site.queue.add("acme/new".into());
    let held = site.queue.get().unwrap();
    browser.shows("change: show").await;
    browser.shows("Workers hold no key.").await;
    browser.click("Pause updates").await;
    browser.shows("live, as of").await;
    browser.shows(held.key()).await;
    let same = browser.run("return document.body.dataset.same").await;
    assert_eq!(same, "page", "it was not loaded again");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X2 X3
async fn two_browsers_see_what_one_of_them_does() {
    let (driver, mut site, one) = start!();
    let two = driver.browser(Setup::default()).await;
    site.stop_workers();
    one.open(&site.at("/q/mails/dead")).await;
    two.open(&site.at("/q/mails/dead")).await;
    two.shows("3 of at most").await;
    one.click("Put back").await;
    one.shows("2 of at most").await;
    two.shows("2 of at most").await;
    // The button of a letter that is gone, on a page from before.
    one.click("Put back").await;
    one.shows("1 of at most").await;
    two.shows("1 of at most").await;
    two.click("Put back").await;
    two.shows("1 put back").await;
    assert_eq!((site.letters.len(), site.queue.len()), (0, 3));
    one.close().await;
    two.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X3
async fn after_an_action_on_the_page_of_a_letter_the_links_lead_where_they_did() {
    let (_driver, site, browser) = start!();
    site.queue.pause().unwrap();
    browser.open(&site.at("/q/mails/dead")).await;
    browser.click("wayne/bad-3").await;
    browser.shows("given up the last time at").await;
    browser.click("Put back").await;
    browser.shows("1 put back into the queue.").await;
    let title = browser.0.title().await.unwrap();
    assert_eq!(title, "Dead letters of mails · queues");
    browser.click("Overview").await;
    browser.shows("State: paused").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X3
async fn a_form_of_another_site_does_nothing() {
    let (_driver, site, browser) = start!();
    // The browser has a cookie of the board.
    browser.open(&site.at("/q/mails")).await;
    let form = format!(
        "data:text/html,<form method=post action='{}'><input name=action value=drain><button>Win</button></form>",
        site.at("/q/mails/do")
    );
    browser.open(&form).await;
    browser.click("Win").await;
    browser.shows("Refused").await;
    assert!(!site.queue.is_shutting_down());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X2 S6
async fn a_queue_that_ends_while_it_is_looked_at_says_so() {
    let (_driver, mut site, browser) = start!();
    browser.open(&site.at("/q/mails")).await;
    browser.shows("open").await;
    site.queue.shut_down();
    browser.shows("shut down").await;
    site.stop_workers();
    let path = site.at("/q/mails");
    let Site { queue, letters, .. } = site;
    drop((queue, letters));
    browser.shows("the queue is gone").await;
    browser.open(&path).await;
    browser.shows("the queue is gone").await;
    browser.close().await;
}

/// Moves the pointer to the first button of a table.
async fn hover(browser: &Browser) {
    hover_over(browser, By::Css("tbody tr:first-child button")).await;
}

async fn hover_over(browser: &Browser, button: By) {
    let first = || browser.0.find(button.clone());
    // The row may be replaced between finding and moving.
    for _ in 0..20 {
        let move_to = browser.0.action_chain();
        if let Ok(button) = first().await
            && (move_to.move_to_element_center(&button).perform().await).is_ok()
        {
            return;
        }
    }
    panic!("there is no button");
}

#[tokio::test(flavor = "multi_thread")] // X5
async fn nothing_moves_under_the_pointer_and_a_double_click_acts_once() {
    let (_driver, site, browser) = start!();
    browser.open(&site.at("/q/mails/dead")).await;
    browser.shows("live, as of").await;
    hover(&browser).await;
    // The oldest letter goes, and the row under the pointer stays.
    site.letters.remove(0).unwrap();
    browser
        .shows("paused while you select or point, as of")
        .await;
    browser.shows("changes: show").await;
    browser.shows("acme/bad-1").await;
    browser.click("Put back").await;
    browser.shows("there is no dead letter 0 any more").await;
    assert_eq!(site.letters.len(), 2, "no other letter was put back");

    browser.open(&site.at("/q/mails/dead")).await;
    site.queue.pause().unwrap();
    hover(&browser).await;
    let twice = browser.0.action_chain().double_click();
    twice.perform().await.unwrap();
    browser.shows("1 put back").await;
    assert_eq!(site.letters.len(), 1);

    // Somebody else was faster: the button is the same, also on a phone, where it is not replaced by its opposite.
    site.queue.resume();
    browser.open(&site.at("/q/mails")).await;
    browser.shows("live, as of").await;
    hover_over(&browser, By::XPath("//button[text()='Pause']")).await;
    site.queue.pause().unwrap();
    browser
        .shows("paused while you select or point, as of")
        .await;
    browser.shows("changes: show").await;
    let here = browser.0.action_chain().click();
    here.perform().await.unwrap();
    browser.shows("The queue is paused.").await;
    assert!(site.queue.paused() == Some(true));
    // What asks has the focus, for a screen reader.
    browser.click("Drain").await;
    browser.shows("No, go back").await;
    assert_eq!(
        browser.run("return document.activeElement.id").await,
        "question"
    );
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X6
#[allow(clippy::await_holding_lock, reason = "the server waits for it")]
async fn a_page_says_when_it_is_old_and_a_click_does_not_lose_it() {
    let (_driver, mut site, browser) = start!();
    browser.open(&site.at("/q/mails")).await;
    browser.shows("live, as of 20").await;
    // What comes while somebody selects is kept, and shown after that.
    let select =
        "getSelection().selectAllChildren(document.querySelector('#live caption, #live h2'))";
    browser.run(select).await;
    site.stop_workers();
    site.queue.add("acme/kept".into());
    let held = site.queue.get().unwrap();
    browser.shows("paused while you select").await;
    browser.shows("show").await;
    assert!(!browser.text().await.contains("acme/kept"));
    browser.run("getSelection().empty()").await;
    browser.shows("acme/kept").await;
    // A service that hangs, and one that is gone.
    let old = "Not updated: the service does not respond. What is shown is old, as of 20";
    let hang = Arc::clone(&site.hang);
    let hangs = hang.lock().unwrap();
    browser.shows_within(old, 20).await;
    // Also when its stream is opened again, which is 24 to 29 s after the last word.
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let shown = browser.text().await;
        assert!(shown.contains(old), "{shown}");
    }
    drop((hangs, held));
    browser.shows_within("live, as of", 40).await;
    site.server.kill();
    browser.shows(old).await;
    browser.click("Pause").await;
    browser.shows("UTC: perhaps not done: Pause.").await;
    browser.shows(old).await;
    // It stays there.
    browser.shows("UTC: perhaps not done: Pause.").await;
    browser.shows("Keys in hand").await;
    let top = browser
        .run("return document.getElementById('bar').getBoundingClientRect().top")
        .await;
    assert!(top.as_f64().unwrap() < 300.0, "{top}");
    browser.close().await;
}

/// Asks for what has come until it has this text.
async fn shows_news(browser: &Browser, text: &str) {
    while !browser.text().await.contains(text) {
        let show = "document.querySelector('#bar button').click()";
        browser.run(show).await;
    }
}

#[tokio::test(flavor = "multi_thread")] // X5
#[allow(clippy::await_holding_lock, reason = "the server waits for it")]
async fn what_somebody_has_filled_in_and_the_way_back_from_a_question_are_kept() {
    let (_driver, site, browser) = start!();
    let list = site.at("/q/mails/dead?search=bad");
    browser.open(&list).await;
    browser
        .run("document.querySelectorAll('[type=checkbox]')[1].click()")
        .await;
    site.letters.remove(0).unwrap();
    browser.shows("paused while you select or point").await;
    shows_news(&browser, "2 of at most").await;
    let ticked = "return [...document.querySelectorAll(':checked')].map((at) => at.ariaLabel)";
    assert_eq!(browser.run(ticked).await[0], "Tick wayne/bad-3");
    browser.click("Drop all with this text").await;
    browser.shows("Drop 2 dead letters").await;
    browser.0.back().await.unwrap();
    browser.shows("2 of at most").await;
    assert_eq!(browser.0.current_url().await.unwrap().as_str(), list);
    browser
        .run("document.querySelectorAll('[type=checkbox]').forEach((at) => { at.checked = true })")
        .await;
    browser.click("Drop ticked").await;
    browser
        .shows("Drop the 2 dead letters that you have ticked")
        .await;
    browser.click("No, go back").await;
    browser.shows("2 of at most").await;
    assert_eq!(browser.0.current_url().await.unwrap().as_str(), list);
    assert_eq!(browser.run(ticked).await[1], "Tick acme/bad-2");

    site.queue.pause().unwrap();
    site.queue.add("acme/1".into());
    browser.open(&site.at("/q/mails")).await;
    browser.shows("live, as of").await;
    let seconds = "document.querySelector('[type=number]').value";
    browser.run(&format!("{seconds} = 900")).await;
    site.queue.add("acme/2".into());
    shows_news(&browser, "queued\n2\nin hand").await;
    assert_eq!(browser.run(&format!("return {seconds}")).await, "900");
    // A keyboard is where it was.
    let button = browser.0.find(By::XPath("//button[text()='Hold']")).await;
    button.unwrap().send_keys("\u{e007}").await.unwrap();
    browser.shows("The group acme is held.").await;
    let focus = "return document.activeElement.ariaLabel";
    assert_eq!(browser.run(focus).await, "Hold acme");
    let held = site.queue.groups::<String>()[0].held_for.unwrap();
    assert!(held.as_secs() > 800, "{held:?}");
    // A click before the end of an action is not silent, also after that end.
    let hang = Arc::clone(&site.hang);
    let hangs = hang.lock().unwrap();
    browser.click("Release").await;
    browser.click("Release").await;
    assert!(!browser.text().await.contains("not done"));
    browser.click("Drain").await;
    browser.click("Resume").await;
    let ignored = "UTC: not done: Resume. The action before it had not ended.";
    browser.shows(ignored).await;
    drop(hangs);
    browser.shows("The group acme is released.").await;
    browser.shows(ignored).await;
    browser
        .shows("UTC: not done: Drain. The action before")
        .await;
    assert_eq!(site.queue.paused(), Some(true));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X6
async fn a_page_is_asked_for_where_streams_begin_and_bring_nothing() {
    let (_driver, mut site, browser) = start!();
    site.stop_workers();
    site.keeps_streams.store(true, Ordering::SeqCst);
    browser.open(&site.at("/q/mails/keys")).await;
    site.queue.add("acme/new".into());
    // It is asked for when the stream has hung for 24 s, and each 5 s when the second one has.
    browser.shows_within("acme/new", 40).await;
    browser
        .shows_within("updated every 5 seconds, as of", 40)
        .await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X7
async fn a_link_from_elsewhere_breaks_no_tab_and_another_name_shows_nothing() {
    // With scripts a tab that is seen again would get the new token.
    let (_driver, site, browser) = start!(without_scripts: true);
    browser.open(&site.at("/q/mails")).await;
    let first = browser.0.window().await.unwrap();
    let tab = browser.0.new_tab().await.unwrap();
    browser.0.switch_to_window(tab).await.unwrap();
    let link = format!("data:text/html,<a href='{}'>board</a>", site.at("/q/mails"));
    browser.open(&link).await;
    browser.click("board").await;
    browser.shows("State: open").await;
    browser.0.switch_to_window(first).await.unwrap();
    browser.click("Pause").await;
    browser.shows("The queue is paused.").await;
    // That is told once, whoever pauses after that.
    browser.0.refresh().await.unwrap();
    browser.shows("State: paused").await;
    assert!(!browser.text().await.contains("The queue is paused."));
    // A name of another site that resolves to this address.
    let port = site.at("").split(':').nth(2).unwrap().to_owned();
    let rebound = format!("http://evil.test:{port}/q/mails");
    browser.open(&rebound).await;
    browser.shows("this board does not know the name").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X2
async fn ten_tabs_of_a_browser_are_live_where_they_are_seen() {
    let (_driver, site, browser) = start!();
    browser.open(&site.at("/q/mails")).await;
    for _ in 0..10 {
        browser.shows("live, as of").await;
        let tab = browser.0.new_tab().await.unwrap();
        browser.0.switch_to_window(tab).await.unwrap();
        browser.open(&site.at("/q/mails")).await;
    }
    browser.click("Keys").await;
    browser.shows("acme/fails").await;
    browser.close().await;
}
