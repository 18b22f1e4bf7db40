//! The queues of a running process in the terminal, by the address of its board.
//!
//! ```text
//! cargo run -p keyqueue-board --features top --bin keyqueue-top -- http://localhost:8080/queues
//! ```
//!
//! It asks the board for JSON each second, on a thread, so that a board that does not respond holds up no key. Rates are
//! the differences of what the queues have counted: a queue without a name, or a board without its feature `metrics`, has none.

mod poll;
mod screen;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use poll::{Board, Look};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

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
    let first = board.look(None)?;
    thread::sleep(INTERVAL);
    let second = board.look(Some(&first))?;
    let mut text = screen::lines(&board.address, &second).join("\n");
    text.push('\n');
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
        let mut before = None;
        loop {
            let look = board.look(before.as_ref());
            if let Ok(look) = &look {
                before = Some(look.clone());
            }
            if to.send(look).is_err() {
                return;
            }
            thread::sleep(INTERVAL);
        }
    });
    let terminal = ratatui::try_init();
    let mut terminal = terminal.map_err(|error| format!("no terminal (or --once): {error}"))?;
    let mut last: Option<Look> = None;
    let mut trouble = Some("asking the board".to_owned());
    let mut show = || -> io::Result<()> {
        loop {
            for look in looks.try_iter() {
                match look {
                    Ok(look) => (last, trouble) = (Some(look), None),
                    Err(error) => trouble = Some(error),
                }
            }
            // Nothing was seen yet: that is not a board without queues.
            let lines = last.as_ref().map(|last| screen::lines(&address, last));
            let lines = lines.unwrap_or_default();
            terminal.draw(|frame| screen::draw(frame, &lines, trouble.as_deref()))?;
            if event::poll(KEYS)?
                && let Event::Key(key) = event::read()?
            {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                if key.code == KeyCode::Char('q') || control && key.code == KeyCode::Char('c') {
                    return Ok(());
                }
            }
        }
    };
    let ended = show();
    ratatui::restore();
    ended.map_err(|error| format!("the terminal is gone: {error}"))
}
