//! Delay and processor time of `wait`: `cargo run --release -p vcuda-machine --example waiting [DIR]`.
//!
//! Prints for several kernel lengths the mean lateness of `wait` and the share of one processor that it used.

#![expect(clippy::print_stdout, reason = "the figures are this program's output")]

use std::path::PathBuf;
use vcuda_machine::{Command, Config, Machine};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = match std::env::args_os().nth(1) {
        Some(dir) => Machine::open_or_create(&PathBuf::from(dir))?,
        None => Machine::in_memory(Config::default())?,
    };
    let client = machine.attach(std::process::id(), "waiting")?;
    let stream = client.stream_create(client.context_create(0)?, 0)?;
    println!("{:>12} {:>14} {:>14} {:>8}", "kernel us", "late us mean", "late us worst", "cpu %");
    for length_us in [10, 50, 100, 200, 500, 1_000, 5_000, 20_000, 100_000] {
        let rounds = (300_000 / length_us).clamp(3, 2000);
        let (start, cpu) = (machine.now_ns(), cpu_ns()?);
        let (mut late, mut worst) = (0, 0);
        for _ in 0..rounds {
            let ticket =
                client.submit_blocking(stream, Command::Kernel { duration_ns: length_us * 1000, sms: 0 });
            client.wait(ticket);
            let by = machine.now_ns() - client.done_ns(ticket).unwrap_or(0);
            late += by;
            worst = worst.max(by);
        }
        let (spent, cpu) = (machine.now_ns() - start, cpu_ns()? - cpu);
        let mean = late / rounds;
        println!(
            "{length_us:>12} {:>10}.{:03} {:>10}.{:03} {:>8}",
            mean / 1000,
            mean % 1000,
            worst / 1000,
            worst % 1000,
            cpu * 100 / spent
        );
    }
    Ok(())
}

/// Processor time of this process, from the kernel (first field of schedstat, ns).
fn cpu_ns() -> Result<u64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("schedstat is empty")?.parse()?)
}
