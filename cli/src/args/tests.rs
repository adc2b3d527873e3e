//! Tests of parsing the command line, and of its help.

use clap::CommandFactory as _;

use super::bench::{BENCH_EXAMPLES, DEMO_EXAMPLES};
use super::*;

#[test]
fn the_tree_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_help_begins_with_examples() {
    fn check(command: &mut clap::Command) {
        // `help` is made by clap.
        if !command.is_hide_set() && command.get_name() != "help" {
            let help = command.render_long_help().to_string();
            assert!(help.starts_with("Examples:\n  vcuda"), "{}:\n{help}", command.get_name());
        }
        command.get_subcommands_mut().for_each(check);
    }
    check(&mut Cli::command());
}

#[test]
fn changes_of_a_quota_have_no_defaults() {
    let vcuda = Cli::command();
    let set = vcuda.find_subcommand("set").unwrap();
    let grant = vcuda.find_subcommand("grant").unwrap();
    let resize = grant.find_subcommand("resize").unwrap();
    for command in [set, resize] {
        let help = command.clone().render_long_help().to_string();
        assert_eq!(help.matches("[default: as it is]").count(), 6, "{help}");
        assert_eq!(help.matches("[default:").count(), 6, "{help}");
    }
}

#[test]
fn examples_fit_80_columns() {
    for examples in [
        MAIN_EXAMPLES,
        RUN_EXAMPLES,
        APPLY_EXAMPLES,
        APPLY_DETAILS,
        SIM_EXAMPLES,
        REPORT_EXAMPLES,
        SMI_EXAMPLES,
        TOP_EXAMPLES,
        PS_EXAMPLES,
        EVENTS_EXAMPLES,
        GRANT_EXAMPLES,
        GPU_EXAMPLES,
        SET_EXAMPLES,
        SUSPEND_EXAMPLES,
        DOCTOR_EXAMPLES,
        DEMO_EXAMPLES,
        BENCH_EXAMPLES,
        COMPLETIONS_EXAMPLES,
        MAN_EXAMPLES,
        USAGE_EXAMPLES,
        BUNDLE_EXAMPLES,
    ] {
        for line in examples.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn options_after_the_command_are_the_commands() {
    let cli = Cli::parse_from(["vcuda", "run", "--memory", "1Gi", "--", "sh", "--memory", "x", "--"]);
    let Command::Run(run) = cli.command else { panic!("not run") };
    assert_eq!(run.command, ["sh", "--memory", "x", "--"]);
    let cli = Cli::parse_from(["vcuda", "run", "--cores", "50", "python", "-u", "--cores=x"]);
    let Command::Run(run) = cli.command else { panic!("not run") };
    assert_eq!(run.command, ["python", "-u", "--cores=x"]);
}

#[test]
fn sim_runs_a_command_or_reports() {
    let cli = Cli::parse_from(["vcuda", "sim", "--gpus", "2", "--", "report", "--json"]);
    let Command::Sim(sim) = cli.command else { panic!("not sim") };
    assert!(sim.action.is_none());
    assert_eq!(sim.command, ["report", "--json"]);
    let cli = Cli::parse_from(["vcuda", "sim", "report", "--json"]);
    let Command::Sim(sim) = cli.command else { panic!("not sim") };
    assert!(matches!(sim.action, Some(SimAction::Report { json: true, machine: None })));
}
