//! State of `vcuda top`'s screen, and what each key does.

use std::collections::VecDeque;

use crossterm::event::{KeyCode, KeyModifiers};

use super::HISTORY;
use super::actions::{self, Doomed};
use super::rows::{self, History, Object, Row, Selection};
use crate::args::SortKey;
use crate::config::Environment;
use crate::failure::Failure;
use crate::render::Snapshot;

/// What the keys mean now.
#[derive(Clone, Debug)]
pub(super) enum Mode {
    /// Commands.
    Table,
    /// The list of keys is shown; any key closes it.
    Help,
    /// A filter is typed.
    Filter,
    /// The new quota of the tenant of this name is typed.
    Quota {
        /// The tenant.
        name: String,
        /// Text so far.
        typed: String,
    },
    /// A process is ended if `y` is pressed.
    End(Doomed, String),
}

#[derive(Debug)]
pub(super) struct Screen {
    pub(super) source: String,
    pub(super) selection: Selection,
    pub(super) mode: Mode,
    snapshot: Snapshot,
    history: History,
    /// What the last key did.
    pub(super) note: Option<String>,
    pub(super) problem: Option<String>,
    /// Number of the selected row among those that have an object.
    selected: usize,
}

impl Screen {
    pub(super) fn new(source: String, sort: SortKey) -> Screen {
        Screen {
            source,
            selection: Selection { sort, filter: String::new(), has_processes: true },
            mode: Mode::Table,
            snapshot: Snapshot::of(Vec::new()),
            history: History::new(),
            note: None,
            problem: None,
            selected: 0,
        }
    }

    /// Applies a snapshot. After a failure, such as a restart of the manager, the last figures stay with a note.
    pub(super) fn apply(&mut self, seen: Result<Snapshot, Failure>) {
        let snapshot = match seen {
            Ok(snapshot) => snapshot,
            Err(failure) => {
                self.problem = Some(failure.to_string());
                return;
            }
        };
        self.problem = None;
        let mut history = History::new();
        for gpu in &snapshot.gpus {
            for tenant in &gpu.tenants {
                let key = (gpu.uuid.clone(), tenant.name.clone());
                let mut past: VecDeque<u64> = self.history.remove(&key).unwrap_or_default();
                if past.len() == HISTORY {
                    past.pop_front();
                }
                past.push_back(tenant.core_used_permille.into());
                history.insert(key, past);
            }
        }
        // The histories of tenants that have ended are dropped with the old map.
        self.history = history;
        self.snapshot = snapshot;
    }

    /// Lines of the table, and the place of the selected one.
    pub(super) fn rows(&self, width: usize) -> (Vec<Row>, Option<usize>) {
        let rows = rows::rows(&self.snapshot, &self.history, &self.selection, width);
        let places: Vec<usize> = (0..rows.len())
            .filter(|place| rows.get(*place).is_some_and(|row| row.object.is_some()))
            .collect();
        let selected = places.get(self.selected.min(places.len().saturating_sub(1))).copied();
        (rows, selected)
    }

    fn object(&self) -> Option<Object> {
        let (rows, selected) = self.rows(usize::from(u16::MAX));
        rows.get(selected?)?.object.clone()
    }

    /// Handles a key. Returns whether to go on.
    pub(super) fn press(&mut self, key: KeyCode, modifiers: KeyModifiers, environment: &Environment) -> bool {
        if key == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL) {
            return false;
        }
        match std::mem::replace(&mut self.mode, Mode::Table) {
            Mode::Table => return self.command(key),
            Mode::Help => {}
            Mode::Filter => self.type_filter(key),
            Mode::Quota { name, typed } => self.type_quota(name, typed, key, environment),
            Mode::End(doomed, _) => {
                self.note = Some(match key {
                    KeyCode::Char('y' | 'Y') => told(doomed.end()),
                    _ => "nothing was ended".to_owned(),
                });
            }
        }
        true
    }

    fn command(&mut self, key: KeyCode) -> bool {
        self.note = None;
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('c') => self.selection.sort = SortKey::Cores,
            KeyCode::Char('m') => self.selection.sort = SortKey::Memory,
            KeyCode::Char('n') => self.selection.sort = SortKey::Name,
            KeyCode::Char('%') => self.selection.sort = SortKey::Quota,
            KeyCode::Char('d') => self.selection.sort = SortKey::Denied,
            KeyCode::Char('p') => self.selection.has_processes = !self.selection.has_processes,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('e') => self.ask_quota(),
            KeyCode::Char('k') => self.ask_end(),
            KeyCode::Down => self.select(self.selected.saturating_add(1)),
            KeyCode::Up => self.select(self.selected.saturating_sub(1)),
            _ => {}
        }
        true
    }

    fn select(&mut self, wanted: usize) {
        let (rows, _) = self.rows(usize::from(u16::MAX));
        let count = rows.iter().filter(|row| row.object.is_some()).count();
        self.selected = wanted.min(count.saturating_sub(1));
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => return,
            KeyCode::Esc => {
                self.selection.filter.clear();
                return;
            }
            KeyCode::Backspace => {
                self.selection.filter.pop();
            }
            KeyCode::Char(c) => self.selection.filter.extend(c.to_lowercase()),
            _ => {}
        }
        self.mode = Mode::Filter;
    }

    fn ask_quota(&mut self) {
        match self.object() {
            Some(Object::Tenant(name)) => self.mode = Mode::Quota { name, typed: String::new() },
            _ => self.note = Some("select a tenant with the arrow keys first".to_owned()),
        }
    }

    fn type_quota(&mut self, name: String, mut typed: String, key: KeyCode, environment: &Environment) {
        match key {
            KeyCode::Enter => {
                self.note = Some(told(actions::change_quota(&name, &typed, environment)));
                return;
            }
            KeyCode::Esc => return,
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Char(c) => typed.push(c),
            _ => {}
        }
        self.mode = Mode::Quota { name, typed };
    }

    fn ask_end(&mut self) {
        let found = match self.object() {
            Some(Object::Process(Some(pid), name)) => {
                Doomed::find(pid, &name).map(|doomed| (doomed, format!("{pid} ({name})")))
            }
            Some(Object::Process(None, _)) => {
                self.note =
                    Some("this process runs in a container, and its PID here is not known".to_owned());
                return;
            }
            _ => None,
        };
        match found {
            Some((doomed, words)) => self.mode = Mode::End(doomed, words),
            None => self.note = Some("select a process with the arrow keys first".to_owned()),
        }
    }
}

fn told(done: Result<String, Failure>) -> String {
    done.unwrap_or_else(|failure| failure.to_string())
}
