//! Looking and acting, with and without scripts, and in two browsers at once.

use keyqueue::State;

use crate::driver::{Browser, Driver, Setup};
use crate::site::Site;

async fn goes_through_all_views(site: &Site, browser: &Browser) {
    browser.0.goto(&site.at("")).await.unwrap();
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
    browser.shows("3 of at most 1000 letters").await;
    browser.click("wayne/bad-3").await;
    browser.shows("no such address: wayne/bad-3").await;
    browser.click("All queues").await;
    browser.shows("Queues of this process").await;
}

#[tokio::test(flavor = "multi_thread")] // X2
async fn each_view_is_reached_by_links() {
    let Some(driver) = Driver::start().await else {
        return;
    };
    let (site, browser) = (Site::start().await, driver.browser(Setup::default()).await);
    goes_through_all_views(&site, &browser).await;
    browser.0.goto(&site.at("/q/mails/keys")).await.unwrap();
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

async fn acts(site: &mut Site, browser: &Browser, asks: bool) {
    site.queue.pause().unwrap(); // what is put back stays queued
    browser.0.goto(&site.at("/q/mails/dead")).await.unwrap();
    browser.click("Put back").await;
    browser.shows("1 put back into the queue.").await;
    assert_eq!(site.queue.state("acme/bad-1"), State::Queued);
    browser.click("Drop").await;
    if asks {
        assert!(
            browser
                .0
                .get_alert_text()
                .await
                .unwrap()
                .contains("Drop this letter?")
        );
        browser.0.dismiss_alert().await.unwrap();
        assert_eq!(site.letters.len(), 2);
        browser.click("Drop").await;
        browser.0.accept_alert().await.unwrap();
    }
    browser.shows("1 dropped.").await;
    assert_eq!(site.letters.len(), 1);
    browser.click("Put back all").await;
    browser.shows("1 put back").await;
    browser.shows("There is none").await;

    let delayed = site.at("/q/mails/keys?state=delayed");
    browser.0.goto(&delayed).await.unwrap();
    browser.click("Run now").await;
    browser.shows("The key is queued now.").await;
    assert_eq!(site.queue.state("acme/fails"), State::Queued);

    browser.0.goto(&site.at("/q/mails")).await.unwrap();
    browser.click("Resume").await;
    browser.shows("The queue goes on.").await;
    rig::eventually("all were tried", || site.letters.len() == 2);
    browser.click("Pause").await;
    browser.shows("The queue is paused.").await;
    assert!(site.queue.is_paused());

    site.queue.add("globex/1".into());
    browser.0.goto(&site.at("/q/mails")).await.unwrap();
    browser.click("Hold").await;
    browser.shows("The group is held.").await;
    assert!(
        site.queue
            .groups::<String>()
            .iter()
            .any(|group| group.held_for.is_some())
    );
    browser.click("Release").await;
    browser.shows("The group is released.").await;

    browser.click("Drain").await;
    if asks {
        browser.0.accept_alert().await.unwrap();
    }
    browser.shows("The queue is draining").await;
    rig::eventually("it drains", || site.queue.is_shutting_down());
    site.queue.resume();
}

#[tokio::test(flavor = "multi_thread")] // X3
async fn each_action_is_done_by_its_button() {
    let Some(driver) = Driver::start().await else {
        return;
    };
    let (mut site, browser) = (Site::start().await, driver.browser(Setup::default()).await);
    acts(&mut site, &browser, true).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X2 X3
async fn all_of_it_works_without_scripts() {
    let Some(driver) = Driver::start().await else {
        return;
    };
    let without_scripts = true;
    let setup = Setup {
        without_scripts,
        ..Setup::default()
    };
    let (mut site, browser) = (Site::start().await, driver.browser(setup).await);
    goes_through_all_views(&site, &browser).await;
    acts(&mut site, &browser, false).await;
    browser
        .0
        .goto(&site.at("/q/mails?refresh=1"))
        .await
        .unwrap();
    browser.shows("shut down").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X2
async fn a_page_changes_while_it_is_looked_at() {
    let Some(driver) = Driver::start().await else {
        return;
    };
    let (mut site, browser) = (Site::start().await, driver.browser(Setup::default()).await);
    site.stop_workers();
    browser.0.goto(&site.at("/q/mails")).await.unwrap();
    browser.shows("live").await;
    let mark = "document.body.dataset.same = 'page'";
    browser.0.execute(mark, vec![]).await.unwrap();
    site.queue.add("acme/new".into());
    let held = site.queue.get().unwrap();
    browser.shows("acme/new").await;
    drop(held);
    browser.shows("Workers hold no key.").await;
    let same = browser
        .0
        .execute("return document.body.dataset.same", vec![])
        .await
        .unwrap();
    assert_eq!(same.json(), "page", "it was not loaded again");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X2 X3
async fn two_browsers_see_what_one_of_them_does() {
    let Some(driver) = Driver::start().await else {
        return;
    };
    let mut site = Site::start().await;
    site.stop_workers();
    let (one, two) = (
        driver.browser(Setup::default()).await,
        driver.browser(Setup::default()).await,
    );
    one.0.goto(&site.at("/q/mails/dead")).await.unwrap();
    two.0.goto(&site.at("/q/mails/dead")).await.unwrap();
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
async fn a_form_of_another_site_does_nothing() {
    let Some(driver) = Driver::start().await else {
        return;
    };
    let (site, browser) = (Site::start().await, driver.browser(Setup::default()).await);
    // The browser has a cookie of the board.
    browser.0.goto(&site.at("/q/mails")).await.unwrap();
    let form = format!(
        "data:text/html,<form method=post action='{}'><input name=action value=drain><button>Win</button></form>",
        site.at("/q/mails/do")
    );
    browser.0.goto(&form).await.unwrap();
    browser.click("Win").await;
    browser.shows("Refused").await;
    assert!(!site.queue.is_shutting_down());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X2 S6
async fn a_queue_that_ends_while_it_is_looked_at_says_so() {
    let Some(driver) = Driver::start().await else {
        return;
    };
    let (mut site, browser) = (Site::start().await, driver.browser(Setup::default()).await);
    browser.0.goto(&site.at("/q/mails")).await.unwrap();
    browser.shows("open").await;
    site.queue.shut_down();
    browser.shows("shut down").await;
    site.stop_workers();
    let path = site.at("/q/mails");
    let Site { queue, letters, .. } = site;
    drop((queue, letters));
    browser.shows("the queue is gone").await;
    browser.0.goto(&path).await.unwrap();
    browser.shows("the queue is gone").await;
    browser.close().await;
}
