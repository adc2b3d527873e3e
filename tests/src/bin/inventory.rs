//! The manager's inventory in a process of its own: `inventory [LIBRARY [MS [STATE]]]`. NVML is opened anew each MS; STATE
//! keeps the GPUs' health. It prints each state and event as a line, and for each GPU on its standard input that GPU's
//! processes. It ends with its input. On a machine with a GPU it shows NVML's answers there.
#![expect(clippy::print_stdout, reason = "a program that prints")]

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vcuda_manager::events::Events;
use vcuda_manager::gpu::{Health, Inventory};
use vcuda_manager::inventory::health::Policy;
use vcuda_manager::inventory::{Node, Settings};
use vcuda_region::GpuUuid;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let quick = |ms| Duration::from_millis(ms);
    // XIDs are missed while NVML is opened anew, so tests of XIDs use a long interval.
    let reopen_ms = std::env::args().nth(2).map_or(Ok(60_000), |text| text.parse())?;
    let settings = Settings {
        nvml_library: std::env::args_os().nth(1).map(PathBuf::from),
        state: std::env::args_os().nth(3).map(PathBuf::from),
        // Looks come each 50 ms, on a machine that does other things too.
        silence: quick(2000),
        policy: Policy { fatal_xids: [48].into(), clean_probes: 4, ..Policy::default() },
        look_every: quick(50),
        reopen_after: quick(reopen_ms),
        failures_to_reopen: 3,
        retry_least: quick(50),
        retry_most: quick(200),
        ..Settings::default()
    };
    let events = Arc::new(Events::default());
    let node = Node::start(settings, events.clone())?;
    let watched = (node.inventory(), events);
    std::thread::Builder::new().spawn(move || show(watched.0, &watched.1))?;
    for line in std::io::stdin().lock().lines() {
        let gpu: GpuUuid = line?.trim().parse()?;
        println!("processes {:?}", node.processes(&gpu));
    }
    Ok(())
}

fn show(mut inventory: tokio::sync::watch::Receiver<Arc<Inventory>>, events: &Events) {
    let mut told = 0;
    loop {
        let now = inventory.borrow_and_update().clone();
        for event in events.listen(told).0 {
            told = event.number;
            println!("event {} {}", event.report.reason, event.report.message);
        }
        let health = |health: &Health| match health {
            Health::Healthy => "healthy".to_owned(),
            Health::Unhealthy(why) => format!("unhealthy: {why}"),
        };
        let gpus: Vec<String> =
            now.gpus.iter().map(|gpu| format!("{} {}", gpu.uuid, health(&gpu.health))).collect();
        let xids: Vec<String> =
            now.xids.iter().map(|((_, xid), count)| format!("{count} of {xid}")).collect();
        println!(
            "state [{}] xids [{}] problem [{}]",
            gpus.join(", "),
            xids.join(", "),
            now.problem.as_deref().unwrap_or("")
        );
        for gpu in &now.gpus {
            println!("facts {gpu:?} driver {}", now.driver_version);
        }
        std::thread::sleep(Duration::from_millis(10));
        // Nothing changes any more once the threads of NVML have ended.
        while !inventory.has_changed().unwrap_or(true) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if inventory.has_changed().is_err() {
            return;
        }
    }
}
