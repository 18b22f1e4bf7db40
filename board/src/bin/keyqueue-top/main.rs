//! The queues of a running process in the terminal, by the address of its board.
//!
//! ```text
//! cargo run -p keyqueue-board --features top --bin keyqueue-top -- http://localhost:8080/queues
//! ```
//!
//! It asks the board for JSON each second, on a thread, so that a board that does not respond holds up no key. A
//! queue without a name, or a board without its feature `metrics`, has no rates.

mod poll;
mod screen;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use poll::{Board, Look};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGTERM};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a key that is pressed waits at most.
const KEYS: Duration = Duration::from_millis(100);

/// Shows the queues of a running process, by the address of its board. `q` or Ctrl-C ends it
#[derive(Parser)]
#[command(name = "keyqueue-top")]
struct Options {
    /// Where the board is: http://localhost:8080/queues
    address: String,
    /// Look for a second, print what was seen as text, and end
    #[arg(long)]
    once: bool,
    /// A header of each request, such as what the service asks for to know who you are
    #[arg(long, value_name = "NAME:VALUE", value_parser = poll::header)]
    header: Vec<(String, String)>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let board = Board::new(&options.address, options.header);
    let ended = match options.once {
        true => once(&board),
        false => watch(board),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("keyqueue-top: {error}");
            ExitCode::FAILURE
        }
    }
}

fn once(board: &Board) -> Result<(), String> {
    board.look()?; // The board has rates from the second look on.
    thread::sleep(INTERVAL);
    let second = board.look()?;
    let lines = screen::lines(&board.address, &second, screen::PRINTED).into_iter();
    let text: String = lines
        .map(|row| row.text.trim_end().to_owned() + "\n")
        .collect();
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| error.to_string()),
    }
}

/// Draws what the thread has seen last, until a key ends it.
fn watch(board: Board) -> Result<(), String> {
    let address = board.address.clone();
    let (to, looks) = mpsc::channel::<Result<Look, String>>();
    thread::spawn(move || {
        while to.send(board.look()).is_ok() {
            thread::sleep(INTERVAL);
        }
    });
    // Either leaves the terminal as it was.
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&stopped));
        registered.map_err(|error| format!("cannot wait for signals: {error}"))?;
    }
    let terminal = ratatui::try_init();
    let mut terminal = terminal.map_err(|error| format!("no terminal (or --once): {error}"))?;
    let mut last: Option<(Instant, Look)> = None;
    let mut error = Some("nothing was seen yet".to_owned());
    let mut from = 0_usize;
    let mut show = || -> io::Result<()> {
        // Ordering: Relaxed; nothing else is read because of it.
        while !stopped.load(Ordering::Relaxed) {
            for look in looks.try_iter() {
                match look {
                    Ok(look) => (last, error) = (Some((Instant::now(), look)), None),
                    Err(why) => error = Some(why),
                }
            }
            let trouble = error.as_ref().map(|error| match &last {
                Some((at, _)) => format!("as of {} s ago: {error}", at.elapsed().as_secs()),
                None => error.clone(),
            });
            let mut page = 1;
            terminal.draw(|frame| {
                let (width, height) = (frame.area().width.into(), frame.area().height);
                page = usize::from(height).saturating_sub(2).max(1);
                // Nothing was seen yet: that is not a board without queues.
                let lines = last
                    .as_ref()
                    .map(|(_, look)| screen::lines(&address, look, width));
                let lines = lines.unwrap_or_default();
                screen::draw(frame, &lines, &mut from, trouble.as_deref());
            })?;
            if event::poll(KEYS)?
                && let Event::Key(key) = event::read()?
            {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('q') => return Ok(()),
                    KeyCode::Char('c') if control => return Ok(()),
                    KeyCode::Down => from += 1,
                    KeyCode::Up => from = from.saturating_sub(1),
                    KeyCode::PageDown => from += page,
                    KeyCode::PageUp => from = from.saturating_sub(page),
                    KeyCode::Home => from = 0,
                    // As far as there are lines.
                    KeyCode::End => from = usize::from(u16::MAX),
                    _ => {}
                }
            }
        }
        Ok(())
    };
    let ended = show();
    ratatui::restore();
    ended.map_err(|error| format!("the terminal is gone: {error}"))
}
