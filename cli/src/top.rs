//! `vcuda top`: shows GPUs, tenants and processes live, on the whole terminal, and changes quotas.

mod actions;
mod draw;
mod rows;
mod screen;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use crossterm::event::{self, Event};
use ratatui::DefaultTerminal;
use vcuda_region::clock;

use crate::args::TopArgs;
use crate::config::Environment;
use crate::ended::Ended;
use crate::failure::{Failure, failed};
use crate::snapshot_source::SnapshotSource;
use screen::Screen;

/// Interval between two snapshots (ns), that of the measurement of shares.
const LOOK_NS: u64 = 1_000_000_000;
/// Number of snapshots in a tenant's history.
const HISTORY: usize = 60;

/// Draws until `q` is pressed, or a signal ends it.
pub(crate) fn top(args: &TopArgs, environment: &Environment) -> Result<(), Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "top: draws on a terminal; for a file or a pipe there is `vcuda smi --watch --json`".to_owned(),
        ));
    }
    let mut snapshots = SnapshotSource::find(environment, args.sim)?;
    let source = match (snapshots.socket(), snapshots.down()) {
        (Some(socket), _) => format!("manager at {}", socket.display()),
        (None, Some(down)) => format!("what is seen from here: {}", down.words()),
        (None, None) => "this user's tenants".to_owned(),
    };
    let ended = Ended::listen()?;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let watched = watch(&mut terminal, &mut snapshots, Screen::new(source, args.sort), environment, &ended);
    ratatui::restore();
    ended.finish();
    watched
}

fn watch(
    terminal: &mut DefaultTerminal,
    snapshots: &mut SnapshotSource,
    mut screen: Screen,
    environment: &Environment,
    ended: &Ended,
) -> Result<(), Failure> {
    let mut due_ns = 0;
    while !ended.is_so() {
        let now_ns = clock::now_ns();
        if now_ns >= due_ns {
            screen.apply(snapshots.look());
            due_ns = now_ns + LOOK_NS;
        }
        terminal.draw(|frame| draw::screen(frame, &screen)).map_err(failed)?;
        let wait_ns = due_ns.saturating_sub(clock::now_ns());
        if ended.poll(Duration::from_nanos(wait_ns)).map_err(failed)?
            && let Event::Key(key) = event::read().map_err(failed)?
            && key.is_press()
            && !screen.press(key.code, key.modifiers, environment)
        {
            return Ok(());
        }
    }
    Ok(())
}
