//! What the pages look like: hostile keys, a phone, the dark, a keyboard, and what a screen reader is told.

use std::time::Duration;

use serde_json::json;
use thirtyfour::{By, Key};

use crate::driver::{Browser, Driver, Setup, start};
use crate::site::Site;

const PAGES: [&str; 4] = ["", "/q/mails", "/q/mails/keys", "/q/mails/dead"];

/// All pages, with that of the first letter.
async fn pages(site: &Site, browser: &Browser) -> Vec<String> {
    browser.open(&site.at("/q/mails/dead")).await;
    let letter = browser
        .run("return document.querySelector('td a').href")
        .await;
    let pages = PAGES.iter().map(|page| site.at(page));
    pages.chain(letter.as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")] // X2
async fn hostile_keys_run_nothing_and_change_no_page() {
    let (_driver, site, browser) = start!();
    for text in [
        "<script>window.hacked = 1</script>",
        "\"><img src=x onerror=\"window.hacked = 1\">",
        "a\u{202e}gnp.exe",
        "nul\0 esc\u{1b}[31m",
    ] {
        site.queue.add(format!("bad {text}"));
        site.queue.add(format!("fail {text}"));
    }
    site.queue.add(format!("bad {}", "long ".repeat(200_000)));
    rig::eventually("all were tried", || {
        site.letters.len() == 8 && site.queue.counts().delayed == 5
    });
    for page in pages(&site, &browser).await {
        browser.open(&page).await;
        browser.shows("live").await;
        assert_eq!(browser.run("return window.hacked ?? 0").await, 0, "{page}");
        assert_eq!(
            browser.run("return document.scripts.length").await,
            1,
            "{page}"
        );
        assert_eq!(
            browser.run("return document.images.length").await,
            0,
            "{page}"
        );
    }
    browser.open(&site.at("/q/mails/dead")).await;
    browser.shows("<script>window.hacked = 1</script>").await;
    browser.shows("\\u{202e}").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")] // X2
async fn a_phone_shows_all_of_a_page_in_its_width() {
    let (_driver, site, browser) = start!(is_phone: true);
    site.queue.add(format!("bad {}", "x".repeat(500)));
    rig::eventually("it was tried", || site.letters.len() == 4);
    for page in pages(&site, &browser).await {
        browser.open(&page).await;
        let wider = browser
            .run("return document.documentElement.scrollWidth - innerWidth")
            .await;
        assert!(
            wider.as_i64().unwrap() <= 0,
            "{page} is {wider} pixels too wide"
        );
    }
    browser.open(&site.at("/q/mails/dead")).await;
    browser.shows("updated when you ask, as of").await;
    browser.close().await;
}

/// Headings, states and buttons that take more than one line; links and names without a width; buttons that are named alike, or can
/// be clicked and look as if not; cells whose texts touch, or stand in no line on a phone; legends that look like links; one
/// thing in the plural; what is not where its place in the page says.
const BROKEN: &str = r"
    const broken = [];
    const tall = (at, most) => { if (at.offsetHeight > most) broken.push(at.innerText + ' in ' + at.offsetHeight); };
    for (const at of document.querySelectorAll('thead th')) if (at.offsetParent) tall(at, 45);
    for (const at of document.querySelectorAll('.state, td time')) if (at.getClientRects().length > 1) broken.push(at.outerHTML);
    for (const at of document.querySelectorAll('td button')) tall(at, 40);
    for (const at of document.querySelectorAll('td a')) if (at.offsetWidth < 8) broken.push(at.outerHTML);
    const all = (path) => [...document.querySelectorAll(path)];
    const names = all('td button').map((at) => at.ariaLabel);
    if (new Set(names).size < names.length) broken.push('alike: ' + names);
    const bad = (path, is) => all(path).filter(is).forEach((at) => broken.push(at.outerHTML));
    const style = (at) => getComputedStyle(at);
    bad('bdi', (at) => !at.innerText.trim());
    bad('button', (at) => at.disabled !== style(at).opacity < 1);
    bad('#live > form', () => true);
    bad('td input[type=checkbox]', (at) => at.offsetWidth > 30);
    bad('.key', (at) => style(at).textDecorationLine !== 'none' || style(at).color === style(document.querySelector('a')).color);
    bad('main', (at) => /\b1 (attempts|changes|groups|letters|spaces)\b/.test(at.innerText));
    const box = (at) => { const range = new Range(); range.selectNodeContents(at); return range.getBoundingClientRect(); };
    const touches = (a, b) => a.left >= 0 && b.left >= 0 && a.width && b.width && a.top < b.bottom && b.top < a.bottom && b.left - a.right < 12;
    bad('th, td', (at) => at.nextElementSibling && touches(box(at), box(at.nextElementSibling)));
    if (innerWidth < 640) {
        bad('th a', (at) => at.getBoundingClientRect().right < 0);
        bad('td', (at) => at.offsetHeight && (parseFloat(style(at).paddingLeft) || !at.innerHTML));
    }
    return broken.concat(document.documentElement.scrollWidth > innerWidth ? ['wide'] : []);
";

#[tokio::test(flavor = "multi_thread")] // X2
async fn odd_texts_break_no_other_column() {
    let (_driver, site, browser) = start!();
    for odd in ["", "   ", &"x".repeat(160), &"many words ".repeat(20)] {
        site.queue.add(format!("bad{odd}"));
        site.queue
            .add_after(odd.to_owned(), Duration::from_secs(99_999));
    }
    rig::eventually("all were tried", || site.letters.len() == 7);
    site.queue.pause().unwrap();
    site.queue.add("/of a group without a name".into());
    for width in [1440, 768, 375] {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        (browser.devtools("Emulation.setDeviceMetricsOverride", size)).await;
        for page in ["", "/q/mails", "/q/mails/keys", "/q/mails/dead"] {
            browser.open(&site.at(page)).await;
            assert_eq!(browser.run(BROKEN).await, json!([]), "{page} at {width}");
        }
    }
    browser.close().await;
}

/// What axe-core finds: contrast, names, landmarks, order of headings and the rest of its rules.
const AXE: &str = r"
    const done = arguments[arguments.length - 1];
    const of = (node) => node.html.slice(0, 120) + ' ' + node.failureSummary;
    axe.run().then((found) => done(found.violations.map((rule) => [rule.id, rule.nodes.map(of)])), (error) => done(String(error)));
";

#[tokio::test(flavor = "multi_thread")] // X2
async fn axe_finds_nothing_in_light_and_dark_on_a_screen_and_on_a_phone() {
    let by = ".ci/jobs/programs.sh browser";
    let Some(axe) = servers::server("KEYQUEUE_AXE", "axe-core-4.14.1.js", by) else {
        return;
    };
    let Some(driver) = Driver::start().await else {
        return;
    };
    let (axe, site) = (std::fs::read_to_string(axe).unwrap(), Site::start().await);
    site.queue.add("globex/1".into());
    for (is_dark, is_phone) in [(false, false), (true, true)] {
        let setup = Setup {
            is_dark,
            is_phone,
            ..Setup::default()
        };
        let browser = driver.browser(setup).await;
        let mut pages = pages(&site, &browser).await;
        let more = [
            "/q/mails/dead?group=error",
            "/q/mails/keys?sort=due",
            "/q/none",
            "question",
        ];
        pages.extend(more.map(|page| site.at(page)));
        for page in pages {
            match page.ends_with("question") {
                true => {
                    browser.open(&site.at("/q/mails/dead")).await;
                    browser.click("Put back all").await;
                    browser.shows("No, go back").await;
                }
                false => browser.open(&page).await,
            }
            let dark = "return matchMedia('(prefers-color-scheme: dark)').matches";
            assert_eq!(browser.run(dark).await, is_dark);
            browser.run(&axe).await;
            let found = browser.0.execute_async(AXE, vec![]).await.unwrap();
            assert_eq!(
                found.json(),
                &json!([]),
                "{page}, dark and phone: {is_dark}"
            );
        }
        browser.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")] // X2
async fn a_screen_reader_is_told_what_each_control_is_and_a_keyboard_reaches_it() {
    let (_driver, site, browser) = start!();
    site.queue.pause().unwrap();
    site.queue.add("globex/1".into());
    for page in pages(&site, &browser).await {
        browser.open(&page).await;
        let tree = browser
            .devtools("Accessibility.getFullAXTree", json!({}))
            .await;
        let mut controls = 0;
        let (mut roles, mut nameless) = (Vec::new(), Vec::new());
        for node in tree["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|node| node["ignored"] == false)
        {
            let role = node["role"]["value"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let name = node["name"]["value"].as_str().unwrap_or_default();
            let controls_are = "button link textbox searchbox spinbutton combobox image table";
            if controls_are.split(' ').any(|known| known == role) {
                controls += 1;
                nameless.extend(name.trim().is_empty().then(|| node.to_string()));
            }
            roles.push(role);
        }
        assert!(nameless.is_empty(), "{page}: {nameless:?}");
        for role in ["main", "navigation", "heading", "status"] {
            assert!(
                roles.iter().any(|known| known == role),
                "{page} has no {role}"
            );
        }
        assert!(controls > 3, "{page}");
    }
    browser.open(&site.at("/q/mails/keys?state=delayed")).await;
    let body = browser.0.find(By::Css("body")).await.unwrap();
    let mut reached = Vec::new();
    body.send_keys(Key::Tab).await.unwrap();
    for _ in 0..30 {
        let at = browser.0.active_element().await.unwrap();
        reached.push(at.text().await.unwrap());
        at.send_keys(Key::Tab).await.unwrap();
        if reached.iter().any(|text| text == "Run now") {
            break;
        }
    }
    assert_eq!(reached[0], "Skip to the content");
    assert!(reached.iter().any(|text| text == "Run now"), "{reached:?}");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes pictures of a demo that runs at KEYQUEUE_DEMO: `.ci/run browser` starts one"]
async fn screenshots() {
    let at = std::env::var("KEYQUEUE_DEMO").unwrap();
    // The README's are there, of a demo that has run for a minute or two.
    let pictures = concat!(env!("CARGO_MANIFEST_DIR"), "/screenshots").to_owned();
    let pictures = std::env::var("KEYQUEUE_PICTURES").unwrap_or(pictures);
    let Some(driver) = Driver::start().await else {
        return;
    };
    for (name, is_dark) in [("light", false), ("dark", true)] {
        let setup = Setup {
            is_dark,
            ..Setup::default()
        };
        let browser = driver.browser(setup).await;
        browser.open(&format!("{at}/q/orders")).await;
        browser.shows("live, as of").await;
        let file = format!("{pictures}/{name}.png");
        browser.0.screenshot(file.as_ref()).await.unwrap();
        browser.close().await;
    }
}
