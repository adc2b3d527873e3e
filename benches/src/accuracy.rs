use anyhow::Result;
use vcuda_benches::lab::{Lab, Load, compile};
fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let program = dir.path().join("load");
    compile(&program)?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    // accuracy SWITCH_NS WINDOWS cap:procs:prog,args ...
    let mut lab = Lab::new(
        &program,
        &format!("context_bytes = \"64MiB\"\nswitch_ns = {}\n", args[0]),
    )?;
    let windows: usize = args[1].parse()?;
    let start = std::time::SystemTime::now();
    for spec in &args[2..] {
        let parts: Vec<&str> = spec.split(':').collect();
        let program: Vec<&str> = parts[2].split(',').collect();
        let quota: Vec<&str> = parts[0].split(',').collect();
        lab.start(Load {
            quota: &quota,
            program: &program,
            processes: parts[1].parse()?,
        })?;
    }
    lab.run_for(2_000_000_000)?;
    for (i, w) in lab.windows(windows, 1_000_000_000)?.iter().enumerate() {
        let mean = w.iter().sum::<f64>() / w.len() as f64;
        println!(
            "{i}: mean {:.3}  {}",
            mean * 100.0,
            w.iter()
                .map(|x| format!("{:.2}", x * 100.0))
                .collect::<Vec<_>>()
                .join(" ")
        );
    }
    println!("{:?}", start.elapsed()?);
    Ok(())
}
