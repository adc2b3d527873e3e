//! `vcuda doctor`: checks each link between a program and its quota, with a remedy for a broken one.

mod chain;
pub(crate) mod container;
mod loader;
mod machine;
mod manager;
pub(crate) mod probe;
mod program;
mod tenants;

use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use vcuda_region::directory;

use crate::args::DoctorArgs;
use crate::config::Environment;
use crate::failure::Failure;
use crate::output::Output;

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    /// Works.
    Ok,
    /// Works, with something worth knowing.
    Note,
    /// Broken: a program is not limited, or does not run.
    Broken,
}

/// Result of checking a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) health: Health,
    /// Name of the link.
    pub(crate) link: String,
    /// The observed state.
    pub(crate) seen: String,
    /// The remedy, unless all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(link: &str, seen: impl Into<String>) -> Finding {
        Finding {
            health: Health::Ok,
            link: link.to_owned(),
            seen: seen.into(),
            remedy: None,
        }
    }

    pub(crate) fn note(link: &str, seen: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            health: Health::Note,
            link: link.to_owned(),
            seen: seen.into(),
            remedy: Some(remedy.into()),
        }
    }

    pub(crate) fn broken(link: &str, seen: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            health: Health::Broken,
            link: link.to_owned(),
            seen: seen.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// Prints the state of each link. Fails if one is broken.
pub(crate) fn doctor(args: &DoctorArgs, environment: &Environment) -> Result<(), Failure> {
    let findings = findings(args, environment);
    let mut out = io::stdout().lock();
    if args.json {
        #[derive(Serialize)]
        struct Document<'a> {
            findings: &'a [Finding],
        }
        let findings = &findings;
        serde_json::to_writer_pretty(&mut out, &Document { findings })?;
        writeln!(out)?;
    } else {
        out.write_all(text(&findings, &Output::find(environment)).as_bytes())?;
    }
    if findings.iter().any(|finding| finding.health == Health::Broken) {
        Err(Failure::Reported)
    } else {
        Ok(())
    }
}

/// Checks the machine and the tenants; inside a tenant or with a command, also the whole chain to the driver.
pub(crate) fn findings(args: &DoctorArgs, environment: &Environment) -> Vec<Finding> {
    // As for `smi` and `set`: a named machine takes the place of the driver.
    let is_simulated = args.sim || environment.machine.is_some();
    let tenant = directory::resolve(environment.tenant.as_deref());
    let places = container::Places::real();
    let is_container = tenant.as_deref() == Some(Path::new(directory::MANAGED)) || places.has_preload();
    let mut findings = Vec::new();
    if is_container {
        findings.extend(container::findings(&places, !is_simulated));
    } else {
        findings.extend(machine::own_files(is_simulated, environment));
    }
    findings.extend(machine::findings(is_simulated, environment));
    match tenant {
        Some(tenant) => findings.extend(chain::check_this_tenant(&tenant, is_container)),
        None => {
            findings.extend(manager::findings(environment));
            findings.extend(tenants::findings(is_simulated, environment));
            if !args.command.is_empty() {
                findings.extend(chain::check_new_tenant(is_simulated, environment));
            }
        }
    }
    if let Some(command) = args.command.first() {
        findings.extend(program::findings(command, environment));
        findings.extend(loader::findings());
    }
    findings
}

/// The findings, a line each, with a line for its remedy.
pub(crate) fn text(findings: &[Finding], output: &Output) -> String {
    let mut text = String::new();
    for finding in findings {
        let (word, color) = match finding.health {
            Health::Ok => ("ok", 32),
            Health::Note => ("note", 33),
            Health::Broken => ("broken", 31),
        };
        let word = format!("{word:<6}");
        let word = if output.is_colored {
            format!("\x1b[{color}m{word}\x1b[0m")
        } else {
            word
        };
        text += &format!("{word}  {:<22}  {}\n", finding.link, finding.seen);
        if let Some(remedy) = &finding.remedy {
            text += &format!("        -> {remedy}\n");
        }
    }
    text
}
