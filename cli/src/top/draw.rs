//! Drawing of `vcuda top`: for each GPU a gauge of memory, then its tenants with their last minute.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Gauge, Paragraph, Row, Table};
use vcuda_quota::MemorySize;

use super::{Screen, table};
use crate::render::{GpuView, clipped};

/// Eighths of a cell, the lowest first.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the whole screen.
pub(super) fn screen(frame: &mut Frame<'_>, screen: &mut Screen) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    let dim = Style::new().add_modifier(Modifier::DIM);
    let title = Line::from(vec![
        Span::styled("vcuda top", Style::new().add_modifier(Modifier::BOLD)),
        Span::styled(format!("  {}", screen.source), dim),
    ]);
    frame.render_widget(title, head);
    let words = match &screen.problem {
        Some(problem) => Span::styled(
            clipped(problem, usize::from(foot.width)),
            Style::new().fg(Color::Red),
        ),
        None => Span::styled(
            "q quit   c by GPU time   m by memory   n by name   ↑↓ scroll",
            dim,
        ),
    };
    frame.render_widget(Line::from(words), foot);
    gpus(frame, body, screen);
}

/// Draws as many GPUs as fit, from the first visible one.
fn gpus(frame: &mut Frame<'_>, body: Rect, screen: &mut Screen) {
    screen.scrolled = screen.scrolled.min(screen.snapshot.gpus.len().saturating_sub(1));
    let shown = || screen.snapshot.gpus.iter().skip(screen.scrolled);
    let heights = shown().map(|gpu| Constraint::Length(height(gpu)));
    let areas = Layout::vertical(heights).spacing(1).split(body);
    for ((index, gpu), area) in shown().enumerate().zip(areas.iter()) {
        if area.height >= 2 {
            one(frame, *area, index + screen.scrolled, gpu, screen);
        }
    }
}

fn height(gpu: &GpuView) -> u16 {
    u16::try_from(gpu.tenants.len())
        .unwrap_or(u16::MAX)
        .saturating_add(3)
}

fn one(frame: &mut Frame<'_>, area: Rect, index: usize, gpu: &GpuView, screen: &Screen) {
    let [name, memory, tenants] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let title = format!("GPU {index}  {}  {}", clipped(&gpu.name, 40), gpu.uuid);
    frame.render_widget(Paragraph::new(Span::styled(title, bold)), name);
    let gauge = Gauge::default()
        .ratio(table::ratio(gpu.memory_used_bytes, gpu.memory_total_bytes))
        .label(format!(
            "memory {} / {}",
            MemorySize(gpu.memory_used_bytes),
            MemorySize(gpu.memory_total_bytes)
        ))
        .gauge_style(Style::new().fg(Color::Blue));
    frame.render_widget(gauge, memory);
    let head = Row::new([
        "TENANT",
        "MEMORY",
        "GPU TIME %",
        "POLICY",
        "DENIED",
        "LAST MINUTE",
    ])
    .style(Style::new().add_modifier(Modifier::DIM));
    let rows = gpu.tenants.iter().map(|tenant| {
        let past = screen.history.get(&(gpu.uuid.clone(), tenant.name.clone()));
        let graph: String = past
            .into_iter()
            .flatten()
            .map(|permille| bar(*permille))
            .collect();
        let [name, memory, cores, policy, denied] = table::cells(tenant);
        let full = tenant.memory_used_bytes >= tenant.memory_limit_bytes;
        let warn = |is_bad: bool| {
            if is_bad {
                Style::new().fg(Color::Yellow)
            } else {
                Style::new()
            }
        };
        Row::new([
            Cell::new(name),
            Cell::new(memory).style(warn(full)),
            Cell::new(cores),
            Cell::new(policy),
            Cell::new(denied).style(warn(tenant.memory_denied > 0)),
            Cell::new(graph).style(Style::new().fg(Color::Green)),
        ])
    });
    let widths = [
        Constraint::Min(12),
        Constraint::Length(21),
        Constraint::Length(14),
        Constraint::Length(11),
        Constraint::Length(7),
        Constraint::Max(60),
    ];
    frame.render_widget(Table::new(rows, widths).header(head), tenants);
}

/// The bar for a share.
fn bar(permille: u64) -> char {
    let place = usize::try_from(permille.min(1000) * 7 / 1000).unwrap_or(0);
    BARS.get(place).copied().unwrap_or('█')
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use vcuda_quota::Quota;

    use super::*;
    use crate::args::SortKey;
    use crate::failure::Failure;
    use crate::render::{Snapshot, TenantView};

    fn tenant(name: &str, core_used_permille: u32) -> TenantView {
        TenantView {
            memory_used_bytes: 1 << 30,
            memory_denied: 2,
            core_used_permille,
            ..TenantView::unused(name, &Quota::fixed(None, 500), 4 << 30)
        }
    }

    fn drawn(state: &mut Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        (0..height)
            .map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>())
            .collect()
    }

    fn state() -> Screen {
        let mut state = Screen::new("manager at /s".to_owned(), SortKey::Cores);
        for share in [100, 300] {
            state.apply(Ok(Snapshot {
                gpus: vec![GpuView {
                    uuid: "GPU-0".to_owned(),
                    name: "Simulated".to_owned(),
                    memory_total_bytes: 80 << 30,
                    memory_used_bytes: 20 << 30,
                    tenants: vec![tenant("idle", 0), tenant("busy", share)],
                }],
            }));
        }
        state
    }

    #[test]
    fn the_busiest_tenant_comes_first_with_its_history() {
        let mut state = state();
        let lines = drawn(&mut state, 110, 12);
        let place = |word: &str| lines.iter().position(|line| line.contains(word)).unwrap();
        assert!(place("busy") < place("idle"), "{lines:#?}");
        assert!(lines[place("busy")].contains("30.0 / 50 %"), "{lines:#?}");
        assert!(lines[place("busy")].contains("▁▃"), "{lines:#?}");
        assert!(
            lines.iter().any(|line| line.contains("memory 20 GiB / 80 GiB")),
            "{lines:#?}"
        );
        assert!(state.press(
            crossterm::event::KeyCode::Char('n'),
            crossterm::event::KeyModifiers::NONE
        ));
        assert!(!state.press(
            crossterm::event::KeyCode::Char('q'),
            crossterm::event::KeyModifiers::NONE
        ));
    }

    #[test]
    fn a_failed_look_is_told_and_what_was_seen_stays() {
        let mut state = state();
        state.apply(Err(Failure::Unavailable("the manager is gone".to_owned())));
        let lines = drawn(&mut state, 80, 12).join("\n");
        assert!(
            lines.contains("the manager is gone") && lines.contains("busy"),
            "{lines}"
        );
    }

    #[test]
    fn small_terminals_are_no_failure() {
        for (width, height) in [(1, 1), (20, 3), (80, 4), (300, 100)] {
            drawn(&mut state(), width, height);
        }
    }
}
