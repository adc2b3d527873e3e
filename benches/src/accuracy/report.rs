//! Rows of figures, as a table and as JSON.

use serde_json::{Value, json};

/// Goal for a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// No goal.
    None,
}

/// A figure of a row.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Name of the figure, with its unit.
    pub name: &'static str,
    /// Measured value.
    pub got: f64,
    /// Goal.
    pub goal: Goal,
}

/// Results of a case.
#[derive(Debug, Clone)]
pub struct Row {
    /// Name of the case.
    pub case: String,
    /// Share of each tenant (percent of the GPU).
    pub shares: Vec<f64>,
    /// Figures that follow from the shares.
    pub figures: Vec<Figure>,
}

impl Figure {
    pub(super) const fn new(name: &'static str, got: f64, goal: Goal) -> Figure {
        Figure { name, got, goal }
    }

    fn is_met(&self) -> bool {
        match self.goal {
            Goal::AtMost(most) => self.got <= most,
            Goal::AtLeast(least) => self.got >= least,
            Goal::None => true,
        }
    }

    fn text(&self) -> String {
        let (name, got) = (self.name, self.got);
        let mark = if self.is_met() { "" } else { " MISSED" };
        match self.goal {
            Goal::AtMost(goal) => format!("{name} {got:.2} (<= {goal:.2}){mark}"),
            Goal::AtLeast(goal) => format!("{name} {got:.3} (>= {goal:.3}){mark}"),
            Goal::None => format!("{name} {got:.2}"),
        }
    }
}

/// Text for each figure that misses its goal.
pub fn missed(rows: &[Row]) -> Vec<String> {
    let of = |row: &Row| -> Vec<String> {
        let missed = row.figures.iter().filter(|figure| !figure.is_met());
        missed.map(|figure| format!("{}: {}", row.case, figure.text())).collect()
    };
    rows.iter().flat_map(of).collect()
}

/// Rows as text.
pub fn as_table(rows: &[Row]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["case", "got %", "figures"]);
    for row in rows {
        let shares: Vec<String> = row.shares.iter().map(|share| format!("{share:.2}")).collect();
        let figures: Vec<String> = row.figures.iter().map(Figure::text).collect();
        table.add_row([row.case.clone(), shares.join(" / "), figures.join("; ")]);
    }
    table.to_string()
}

/// Rows as JSON.
pub fn as_json(rows: &[Row]) -> Value {
    let figure = |figure: &Figure| {
        let (kind, goal) = match figure.goal {
            Goal::AtMost(goal) => ("at most", Some(goal)),
            Goal::AtLeast(goal) => ("at least", Some(goal)),
            Goal::None => ("none", None),
        };
        json!({"name": figure.name, "got": figure.got, "goal": goal, "kind": kind, "met": figure.is_met()})
    };
    let row = |row: &Row| {
        let figures: Vec<Value> = row.figures.iter().map(figure).collect();
        json!({"case": row.case, "shares_percent": row.shares, "figures": figures})
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_goal_is_told() {
        let row = |got, goal| Row {
            case: "case".into(),
            shares: vec![got],
            figures: vec![Figure::new("figure", got, goal)],
        };
        let met = [row(1.0, Goal::AtMost(1.0)), row(1.0, Goal::AtLeast(1.0)), row(9.0, Goal::None)];
        assert!(missed(&met).is_empty());
        for goal in [Goal::AtMost(0.9), Goal::AtLeast(1.1)] {
            for got in [1.0, f64::NAN] {
                let rows = [row(got, goal)];
                assert_eq!(missed(&rows).len(), 1, "{goal:?}");
                assert!(as_table(&rows).contains("MISSED"));
                assert_eq!(as_json(&rows)[0]["figures"][0]["met"], false);
            }
        }
    }
}
