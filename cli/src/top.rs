//! `vcuda top`: shows GPUs and tenants live, on the whole terminal.

mod draw;
mod table;

use std::collections::{HashMap, VecDeque};
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::DefaultTerminal;
use vcuda_region::clock;

use crate::args::{SortKey, TopArgs};
use crate::config::Environment;
use crate::failure::{Failure, failed};
use crate::render::Snapshot;
use crate::snapshot_source::SnapshotSource;

/// Interval between two snapshots (ns), that of the measurement of shares.
const LOOK_NS: u64 = 1_000_000_000;
/// Number of snapshots in a tenant's history.
const HISTORY: usize = 60;

/// Draws until `q` is pressed.
pub(crate) fn top(args: &TopArgs, environment: &Environment) -> Result<(), Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "top: draws on a terminal; for a file or a pipe there is `vcuda smi --watch --json`".to_owned(),
        ));
    }
    let mut snapshots = SnapshotSource::find(environment, args.sim)?;
    let source = match snapshots.socket() {
        Some(socket) => format!("manager at {}", socket.display()),
        None => "this user's tenants".to_owned(),
    };
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let ended = watch(&mut terminal, &mut snapshots, Screen::new(source, args.sort));
    ratatui::restore();
    ended
}

/// State of the screen.
#[derive(Debug)]
struct Screen {
    /// Description of the source of the figures.
    source: String,
    sort: SortKey,
    snapshot: Snapshot,
    /// GPU time of each tenant on each GPU (thousandths), the newest last.
    history: HashMap<(String, String), VecDeque<u64>>,
    /// The reason why the last snapshot failed.
    problem: Option<String>,
    /// Number of GPUs scrolled out of view.
    scrolled: usize,
}

impl Screen {
    fn new(source: String, sort: SortKey) -> Screen {
        Screen {
            source,
            sort,
            snapshot: Snapshot { gpus: Vec::new() },
            history: HashMap::new(),
            problem: None,
            scrolled: 0,
        }
    }

    /// Applies a snapshot. After a failure, such as a restart of the manager, the last figures stay with a note.
    fn apply(&mut self, seen: Result<Snapshot, Failure>) {
        let mut snapshot = match seen {
            Ok(snapshot) => snapshot,
            Err(failure) => {
                self.problem = Some(failure.to_string());
                return;
            }
        };
        self.problem = None;
        let mut history = HashMap::new();
        for gpu in &mut snapshot.gpus {
            for tenant in &gpu.tenants {
                let key = (gpu.uuid.clone(), tenant.name.clone());
                let mut past: VecDeque<u64> = self.history.remove(&key).unwrap_or_default();
                if past.len() == HISTORY {
                    past.pop_front();
                }
                past.push_back(tenant.core_used_permille.into());
                history.insert(key, past);
            }
            table::sort(&mut gpu.tenants, self.sort);
        }
        // The histories of tenants that have ended are dropped with the old map.
        self.history = history;
        self.snapshot = snapshot;
    }

    /// Handles a key. Returns whether to go on.
    fn press(&mut self, key: KeyCode, modifiers: KeyModifiers) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('c') => self.sort = SortKey::Cores,
            KeyCode::Char('m') => self.sort = SortKey::Memory,
            KeyCode::Char('n') => self.sort = SortKey::Name,
            KeyCode::Down => self.scrolled = self.scrolled.saturating_add(1),
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            _ => {}
        }
        for gpu in &mut self.snapshot.gpus {
            table::sort(&mut gpu.tenants, self.sort);
        }
        true
    }
}

fn watch(
    terminal: &mut DefaultTerminal,
    snapshots: &mut SnapshotSource,
    mut screen: Screen,
) -> Result<(), Failure> {
    let mut due_ns = 0;
    loop {
        let now_ns = clock::now_ns();
        if now_ns >= due_ns {
            screen.apply(snapshots.look());
            due_ns = now_ns + LOOK_NS;
        }
        terminal
            .draw(|frame| draw::screen(frame, &mut screen))
            .map_err(failed)?;
        let wait_ns = due_ns.saturating_sub(clock::now_ns());
        if event::poll(Duration::from_nanos(wait_ns)).map_err(failed)?
            && let Event::Key(key) = event::read().map_err(failed)?
            && key.is_press()
            && !screen.press(key.code, key.modifiers)
        {
            return Ok(());
        }
    }
}
