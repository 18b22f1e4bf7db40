//! `keyqueue-top` with the board of a process that runs.
#![cfg(feature = "top")]

#[allow(dead_code, reason = "this program uses a part of it")]
#[path = "pages/common.rs"]
mod common;

use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use http::StatusCode;
use keyqueue::WorkQueue;
use keyqueue_board::Shown;
use tokio::net::TcpListener;
use tokio::process::Command;

use common::{HOUR, Site};

/// Serves a router, and returns its address.
async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    format!("http://{address}")
}

async fn top(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_keyqueue-top"));
    program.args(arguments).stdin(Stdio::null());
    program.output().await.unwrap()
}

/// The words of the line of a queue.
fn words<'a>(text: &'a str, queue: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.starts_with(queue));
    let line = line.unwrap_or_else(|| panic!("no {queue} in {text}"));
    line.split_whitespace().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // X1 X2
async fn the_numbers_of_a_running_process_are_printed() {
    let site = Site::new();
    let queue = site.queue();
    queue.add_all(["a/bad-1".into(), "a/bad-2".into(), "a/fail".into()]);
    site.work().await;
    queue.add("a/held".into());
    let _held = queue.try_get().unwrap();
    queue.add_all((0..5).map(|n| format!("b/{n}")));
    queue.add_after("a/later".into(), HOUR);

    let other = Arc::new(WorkQueue::builder().name("other").build().unwrap());
    site.board
        .add("a <b>/\u{e9}", Shown::display(&other))
        .unwrap();
    let busy = tokio::spawn({
        let other = Arc::clone(&other);
        async move {
            loop {
                other.add(1);
                drop(other.try_get());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let gone = Arc::new(WorkQueue::<u8>::new());
    site.board.add("gone", Shown::display(&gone)).unwrap();
    gone.add_after(1, common::HOUR);
    // What is seen now is not shown of a queue that is gone.
    site.get("/queues").await.has("gone");
    drop(gone);

    let address = serve(site.app.clone()).await + "/queues";
    for address in [&address, &format!("{address}/")] {
        let printed = top(&[address, "--once"]).await;
        assert!(printed.status.success(), "{printed:?}");
        let text = String::from_utf8(printed.stdout).unwrap();
        let mails = words(&text, "mails");
        assert_eq!(&mails[..5], ["mails", "5", "1", "2", "2"], "{text}");
        assert!(mails.contains(&"open"), "{text}");
        let busy = words(&text, "a <b>/\u{e9}");
        let ended = busy[busy.len() - 2];
        match cfg!(feature = "metrics") {
            true => assert!(ended.parse::<f64>().unwrap() > 1.0, "{text}"),
            false => assert_eq!(ended, "-", "{text}"),
        }
        assert_eq!(
            &words(&text, "gone")[1..],
            ["0", "-", "-", "-", "-", "gone", "-", "-"],
            "{text}"
        );
        let held = text.lines().find(|line| line.ends_with(" a/held"));
        let held: Vec<_> = held.unwrap().split_whitespace().collect();
        assert!(held[0].parse::<f64>().unwrap() >= 1.0, "{text}");
        assert_eq!(&held[1..3], ["s", "mails"], "{text}");
    }
    busy.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_says_who_asks_and_a_refusal_is_named() {
    let check = async |request: Request, next: Next| match request.headers().get("x-user") {
        Some(user) if user == "alice" => next.run(request).await,
        _ => StatusCode::UNAUTHORIZED.into_response(),
    };
    let address = serve(Site::new().board.router().layer(from_fn(check))).await;
    let refused = top(&[&address, "--once"]).await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("responds with 401"), "{said}");
    let printed = top(&[&address, "--once", "--header", "x-user: alice"]).await;
    assert!(printed.status.success(), "{printed:?}");
    assert!(String::from_utf8(printed.stdout).unwrap().contains("mails"));
}

#[tokio::test]
async fn an_address_without_a_board_is_named() {
    let other = serve(Router::new()).await;
    let [port] = rig::free_ports::<1>().unwrap();
    let closed = format!("127.0.0.1:{port}");
    let away = Router::new().fallback(async || axum::response::Redirect::temporary("/elsewhere"));
    let away = serve(away).await;
    for (address, said) in [
        (&other, "there is no board at"),
        (&closed, "cannot read"),
        (&away, "responds with 307"),
    ] {
        let refused = top(&[address, "--once"]).await;
        assert_eq!(refused.status.code(), Some(1));
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(text.contains(said) && text.contains(&**address), "{text}");
    }
    assert_eq!(top(&[]).await.status.code(), Some(2));
    let arguments = [&*closed, "--once", "--header", "no colon"];
    assert_eq!(top(&arguments).await.status.code(), Some(2));
}

/// `script` is a terminal.
#[cfg(target_os = "linux")]
mod drawn {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::process::{Child, ChildStdout};

    use super::*;

    /// Starts the program in a terminal of this size, and says which process it is.
    fn start(rows: u16, columns: u16, address: &str) -> Child {
        let program = env!("CARGO_BIN_EXE_keyqueue-top");
        let drawn = format!(
            "stty rows {rows} columns {columns}; echo \"pid $$ \"; exec {program:?} {address}"
        );
        Command::new("timeout")
            .args(["60", "script", "-q", "-e", "-c", &drawn, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    async fn read_until(screen: &mut ChildStdout, shown: &mut Vec<u8>, text: &str) {
        while !String::from_utf8_lossy(shown).contains(text) {
            let byte = screen.read_u8().await;
            shown.push(byte.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(shown))));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn it_scrolls_and_ends_when_q_is_pressed() {
        let site = Site::new();
        let queues: Vec<_> = (0..40).map(|_| Arc::new(WorkQueue::<u8>::new())).collect();
        for (n, queue) in queues.iter().enumerate() {
            site.board
                .add(format!("q{n:02}"), Shown::display(queue))
                .unwrap();
        }
        let address = serve(site.app.clone()).await + "/queues";
        let mut script = start(10, 40, &address);
        let (mut keyboard, mut screen) =
            (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let mut shown = Vec::new();
        read_until(&mut screen, &mut shown, "q00").await;
        assert!(!String::from_utf8_lossy(&shown).contains("KEY IN HAND"));
        keyboard.write_all(b"\x1b[F").await.unwrap(); // End
        // Below the queues. (Of a line that has changed, only what has is drawn.)
        read_until(&mut screen, &mut shown, "KEY IN HAND").await;
        keyboard.write_all(b"q").await.unwrap();
        screen.read_to_end(&mut shown).await.unwrap();
        let ended = script.wait().await.unwrap();
        assert!(ended.success(), "{}", String::from_utf8_lossy(&shown));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_signal_leaves_the_terminal_as_it_was() {
        let site = Site::new();
        site.queue().add("a/held".into());
        let _held = site.queue().try_get().unwrap();
        let address = serve(site.app.clone()).await + "/queues";
        let mut script = start(24, 80, &address);
        let mut screen = script.stdout.take().unwrap();
        let mut shown = Vec::new();
        read_until(&mut screen, &mut shown, "a/held").await;
        let text = String::from_utf8_lossy(&shown).into_owned();
        assert!(text.contains("FAILED/S"), "{text}");
        let pid = text
            .split("pid ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        let killed = Command::new("kill").arg(pid).status().await.unwrap();
        assert!(killed.success());
        screen.read_to_end(&mut shown).await.unwrap();
        let text = String::from_utf8_lossy(&shown);
        // The usual screen, with a cursor.
        assert!(
            text.contains("\x1b[?1049l") && text.contains("\x1b[?25h"),
            "{text}"
        );
        assert!(script.wait().await.unwrap().success());
    }
}
