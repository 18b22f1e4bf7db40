//! A browser: headless Chromium by chromedriver, both of the distribution's packages.

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use thirtyfour::error::WebDriverErrorInner;
use thirtyfour::{By, Capabilities, WebDriver};

/// Finds a program on the path.
fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Starts browsers.
pub(crate) struct Driver {
    process: Child,
    port: u16,
    chromium: PathBuf,
}

/// Starts a site and a browser that is set up like this; the test returns where there is no browser.
macro_rules! start {
    ($($setup:ident: true),*) => {
        match crate::driver::Driver::start().await {
            None => return,
            Some(driver) => {
                let setup = crate::driver::Setup { $($setup: true,)* ..Default::default() };
                let browser = driver.browser(setup).await;
                (driver, crate::site::Site::start().await, browser)
            }
        }
    };
}
pub(crate) use start;

/// How a browser is set up.
#[derive(Clone, Copy, Default)]
pub(crate) struct Setup {
    pub(crate) without_scripts: bool,
    pub(crate) is_dark: bool,
    pub(crate) is_phone: bool,
}

impl Driver {
    /// Starts chromedriver; `None`, and the test is counted as skipped, where it is not installed.
    pub(crate) async fn start() -> Option<Self> {
        let (Some(driver), Some(chromium)) = (program("chromedriver"), program("chromium")) else {
            rig::skipped(
                "there is no chromium; `apt-get install chromium chromium-driver` installs it",
            );
            return None;
        };
        let [port] = rig::free_ports().expect("a port is free");
        let process = Command::new(driver)
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        Some(Driver {
            process,
            port,
            chromium,
        })
    }

    /// Opens a browser with a new profile.
    pub(crate) async fn browser(&self, setup: Setup) -> Browser {
        let mut arguments = vec![
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            "--window-size=1100,900",
            // As another site's name does that is bound to this address.
            "--host-resolver-rules=MAP evil.test 127.0.0.1",
        ];
        arguments.extend(
            setup
                .is_dark
                .then_some("--blink-settings=preferredColorScheme=0"),
        );
        // 1 allows scripts, 2 does not.
        let scripts = if setup.without_scripts { 2 } else { 1 };
        let options = json!({
            "binary": self.chromium,
            "args": arguments,
            "prefs": { "profile.managed_default_content_settings.javascript": scripts },
        });
        let mut wanted = serde_json::Map::new();
        wanted.insert("goog:chromeOptions".into(), options);
        wanted.insert("goog:loggingPrefs".into(), json!({ "browser": "ALL" }));
        let wanted = Capabilities::from(wanted);
        let address = format!("http://127.0.0.1:{}", self.port);
        for _ in 0..300 {
            match WebDriver::new(&address, wanted.clone()).await {
                Ok(driver) => {
                    let browser = Browser(driver);
                    if setup.is_phone {
                        browser.be_a_phone().await;
                    }
                    return browser;
                }
                Err(error)
                    if matches!(error.as_inner(), WebDriverErrorInner::SessionNotCreated(_)) =>
                {
                    panic!("{error}")
                }
                // It is not listening yet.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        panic!("chromedriver does not respond");
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) struct Browser(pub(crate) WebDriver);

impl Browser {
    pub(crate) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let done = self.0.cdp().send_raw(command, parameters).await;
        done.expect("the command is known")
    }

    async fn be_a_phone(&self) {
        let size = json!({ "width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true });
        self.devtools("Emulation.setDeviceMetricsOverride", size)
            .await;
        let fingers = json!({ "enabled": true });
        self.devtools("Emulation.setTouchEmulationEnabled", fingers)
            .await;
    }

    pub(crate) async fn open(&self, address: &str) {
        self.0.goto(address).await.expect("it opens");
    }

    /// Returns what a script returns.
    pub(crate) async fn run(&self, script: &str) -> Value {
        let ran = self.0.execute(script, vec![]).await;
        ran.expect("it runs").json().clone()
    }

    pub(crate) async fn text(&self) -> String {
        let body = self.0.find(By::Css("body")).await.expect("a page");
        body.text().await.expect("text")
    }

    /// Waits until the page shows a text.
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> impl Future<Output = ()> {
        self.shows_within(text, 10)
    }

    #[track_caller]
    pub(crate) fn shows_within(&self, text: &str, seconds: u32) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            let mut shown = String::new();
            for _ in 0..20 * seconds {
                // Between two pages there is none.
                if let Ok(body) = self.0.find(By::Css("body")).await {
                    shown = body.text().await.unwrap_or(shown);
                }
                if shown.contains(text) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            panic!("{at}: {text:?} is not shown: {shown}");
        }
    }

    /// Clicks on a link or a button with this text.
    #[track_caller]
    pub(crate) fn click(&self, text: &str) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        let path =
            format!("(//a[normalize-space()='{text}'] | //button[normalize-space()='{text}'])[1]");
        async move {
            // Not the second half of a double click.
            tokio::time::sleep(Duration::from_millis(550)).await;
            // The live part may be replaced between finding and clicking.
            for _ in 0..20 {
                if let Ok(found) = self.0.find(By::XPath(&path)).await
                    && found.click().await.is_ok()
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            panic!(
                "{at}: there is no {text:?} to click on: {}",
                self.text().await
            );
        }
    }

    /// Clicks on a button, and says that it is meant.
    #[track_caller]
    pub(crate) fn sure(&self, text: &str) -> impl Future<Output = ()> {
        let click = self.click(text);
        async move {
            click.await;
            self.shows("No, go back").await;
            self.click("Yes").await;
        }
    }

    /// What the console says.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let log = self.0.get_log("browser").await.expect("a log");
        log.into_iter().map(|line| line.message).collect()
    }

    pub(crate) async fn close(self) {
        self.0.quit().await.expect("it closes");
    }
}
