//! Tests of the screen of `vcuda top`, on a terminal in memory.

use crossterm::event::{KeyCode, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use vcuda_quota::Quota;

use super::*;
use crate::args::SortKey;
use crate::config::Environment;
use crate::failure::Failure;
use crate::render::{GpuView, ProcessView, Snapshot, TenantView};

fn tenant(name: &str, core_used_permille: u32, pid: u32) -> TenantView {
    TenantView {
        memory_used_bytes: 1 << 30,
        core_used_permille,
        processes: vec![ProcessView {
            pid,
            name: "python".to_owned(),
            user: Some("alice".to_owned()),
            command: Some(format!("python {name}.py")),
            is_in_container: false,
            memory_used_bytes: Some(1 << 30),
        }],
        ..TenantView::unused(name, &Quota::fixed(None, 500), 4 << 30)
    }
}

fn drawn(state: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen(frame, state)).unwrap();
    let buffer = terminal.backend().buffer();
    (0..height).map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>()).collect()
}

fn state() -> Screen {
    let mut state = Screen::new("manager at /s".to_owned(), SortKey::Cores);
    for share in [100, 300] {
        state.apply(Ok(Snapshot::of(vec![GpuView {
            memory_total_bytes: 80 << 30,
            memory_used_bytes: 20 << 30,
            // PIDs beyond the kernel's largest: no process has them.
            tenants: vec![tenant("idle", 0, 5_000_001), tenant("busy", share, 5_000_002)],
            ..GpuView::new(0, "GPU-0", "Simulated")
        }])));
    }
    state
}

fn press(state: &mut Screen, keys: &str) -> bool {
    let environment = Environment::read();
    keys.chars().all(|key| {
        let key = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
        state.press(key, KeyModifiers::NONE, &environment)
    })
}

#[test]
fn the_busiest_tenant_comes_first_with_its_history_and_processes() {
    let state = state();
    let lines = drawn(&state, 110, 12);
    let place = |word: &str| lines.iter().position(|line| line.contains(word)).unwrap();
    assert!(place("busy") < place("idle"), "{lines:#?}");
    assert!(lines[place("busy")].contains("30.0 / 50 %"), "{lines:#?}");
    assert!(lines[place("busy")].contains("25%"), "{lines:#?}");
    assert!(lines[place("busy")].contains("▁▃"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("20480MiB / 81920MiB")), "{lines:#?}");
    assert!(lines[place("busy") + 1].contains("alice"), "{lines:#?}");
}

/// One frame at each width, as `tests/tests/cli/transcripts/` has it; `VCUDA_TEST_WRITE=1` writes it anew.
#[test]
fn a_frame_is_as_wide_as_the_terminal() {
    for width in [60_u16, 80, 160] {
        let lines = drawn(&state(), width, 12);
        let text: String = lines.iter().map(|line| format!("{}\n", line.trim_end())).collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/tests/cli/transcripts");
        let place = format!("{folder}/top-{width}.txt");
        if std::env::var_os("VCUDA_TEST_WRITE").is_some() {
            std::fs::write(&place, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&place).unwrap_or_default();
        assert_eq!(text, expected, "VCUDA_TEST_WRITE=1 writes {place} anew");
    }
}

#[test]
fn keys_sort_filter_and_help() {
    let mut state = state();
    assert!(press(&mut state, "?"));
    assert!(drawn(&state, 80, 12).join("\n").contains("change the selected tenant's quota"));
    assert!(press(&mut state, "xn/idle\n"));
    let text = drawn(&state, 80, 12).join("\n");
    assert!(text.contains("idle") && !text.contains("busy"), "{text}");
    assert!(!press(&mut state, "q"));
}

#[test]
fn nothing_is_changed_or_ended_without_being_asked() {
    let mut state = state();
    press(&mut state, "k");
    assert!(drawn(&state, 80, 12).join("\n").contains("select a process"));
    press(&mut state, "e--memory 4\n");
    let text = drawn(&state, 120, 12).join("\n");
    assert!(text.contains("a number without a unit"), "{text}");
    let environment = Environment::read();
    state.press(KeyCode::Down, KeyModifiers::NONE, &environment);
    // The process has ended meanwhile.
    press(&mut state, "k");
    assert!(drawn(&state, 80, 12).join("\n").contains("select a process"));
}

#[test]
fn a_failed_look_is_told_and_what_was_seen_stays() {
    let mut state = state();
    state.apply(Err(Failure::Unavailable("the manager is gone".to_owned())));
    let lines = drawn(&state, 80, 12).join("\n");
    assert!(lines.contains("the manager is gone") && lines.contains("busy"), "{lines}");
}

#[test]
fn small_terminals_are_no_failure() {
    for (width, height) in [(1, 1), (20, 3), (80, 4), (300, 100)] {
        drawn(&state(), width, height);
    }
}
