//! The program that a stage's tenants run: a CUDA program that does what it is told on stdin.

mod saturate;
mod timing;

use std::ffi::CStr;
use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};

use vcuda_driver_api::cuda::{CUcontext, CUdeviceptr};
use vcuda_driver_open::{Cuda, CudaProblem, Nvml};
use vcuda_region::{GpuUuid, clock};

use super::protocol::{Reply, Request, Work};
use crate::failure::{Failure, failed};
use saturate::Rest;

/// PTX, so that any GPU's driver can compile it.
const KERNELS: &str = concat!(include_str!("kernels.ptx"), "\0");
const WORK: &CStr = c"vcuda_work";

/// Serves requests until stdin ends.
pub(crate) fn tenant() -> Result<(), Failure> {
    let mut program = match Program::start() {
        Ok(program) => {
            answer(&Reply::Ready)?;
            program
        }
        Err(problem) => {
            return answer(&Reply::Failed {
                message: problem.to_string(),
            });
        }
    };
    let mut held = Vec::new();
    for line in io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line.map_err(failed)?).map_err(failed)?;
        let reply = program.serve(request, &mut held);
        answer(&reply.unwrap_or_else(|problem| Reply::Failed {
            message: problem.to_string(),
        }))?;
    }
    Ok(())
}

fn answer(reply: &Reply) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, reply)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// A CUDA program on the first GPU that it sees.
struct Program {
    cuda: Arc<Cuda>,
    context: CUcontext,
    uuid: String,
    done_iterations: Arc<AtomicU64>,
    rest: Arc<Rest>,
    /// Who keeps the GPU busy, if anybody does.
    worker: Option<Thread>,
}

impl Program {
    fn start() -> Result<Program, CudaProblem> {
        let cuda = Cuda::load()?;
        cuda.init()?;
        let device = cuda.device(0)?;
        let uuid = GpuUuid::from_bytes(cuda.uuid(device)?).to_string();
        let context = cuda.enter(device)?;
        Ok(Program {
            cuda: Arc::new(cuda),
            context,
            uuid,
            done_iterations: Arc::new(AtomicU64::new(0)),
            rest: Arc::default(),
            worker: None,
        })
    }

    fn serve(&mut self, request: Request, held: &mut Vec<CUdeviceptr>) -> Result<Reply, CudaProblem> {
        Ok(match request {
            Request::Calibrate => Reply::Calibrated {
                iterations_per_ms: self.calibrate()?,
            },
            Request::Memory => {
                let (free_bytes, total_bytes) = self.cuda.memory_info()?;
                Reply::Memory {
                    free_bytes,
                    total_bytes,
                }
            }
            Request::Nvml => nvml_memory(&self.uuid),
            Request::Allocate { bytes } => match self.cuda.alloc(bytes) {
                Ok(address) => {
                    held.push(address);
                    Reply::Done
                }
                Err(problem) if problem.is_out_of_memory() => Reply::OutOfMemory,
                Err(problem) => return Err(problem),
            },
            Request::Free => {
                for address in held.drain(..) {
                    self.cuda.free(address)?;
                }
                Reply::Done
            }
            Request::Saturate { work } => self.saturate(work),
            Request::Rest => self.rest(true),
            Request::Resume => self.rest(false),
            Request::Time { call, parts } => timing::timed(&self.cuda, call, parts)?,
            Request::Count => Reply::Count {
                iterations: self.done_iterations.load(Ordering::Acquire),
                at_ns: clock::now_ns(),
            },
        })
    }

    /// Runs longer and longer kernels until one takes 5 ms, and tells the rate of the best of three of that length.
    fn calibrate(&self) -> Result<u64, CudaProblem> {
        let kernel = self.cuda.kernel(kernels(), WORK)?;
        let (calls, stream) = (self.cuda.calls()?, self.cuda.stream()?);
        let (start, end) = (self.cuda.event()?, self.cuda.event()?);
        let time_ms = |iterations: u64| {
            calls.record(stream, start)?;
            calls.launch(stream, kernel, iterations)?;
            calls.record(stream, end)?;
            calls.wait(end)?;
            self.cuda.elapsed_ms(start, end)
        };
        let mut iterations = 1_000_u64;
        while time_ms(iterations)? < 5.0 && iterations < 1 << 40 {
            iterations *= 2;
        }
        let times = [time_ms(iterations)?, time_ms(iterations)?, time_ms(iterations)?];
        let best_ms = times.into_iter().fold(f32::INFINITY, f32::min).max(0.001);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rate of three digits is enough"
        )]
        let rate = (iterations as f64 / f64::from(best_ms)) as u64;
        Ok(rate.max(1))
    }

    /// Starts the thread that submits work until the process ends.
    fn saturate(&mut self, work: Work) -> Reply {
        let (cuda, context, done) = (self.cuda.clone(), self.context, self.done_iterations.clone());
        let rest = self.rest.clone();
        let started = thread::Builder::new().name("saturate".to_owned()).spawn(move || {
            let Err(problem) = saturate::forever(&cuda, context, work, &done, &rest);
            // Whoever watches sees that the count stands still; the reason is for whoever reads stderr.
            let _ = writeln!(io::stderr(), "tenant: {problem}");
        });
        match started {
            Ok(worker) => {
                self.worker = Some(worker.thread().clone());
                Reply::Done
            }
            Err(error) => Reply::Failed {
                message: error.to_string(),
            },
        }
    }

    /// Lets the thread that submits work rest, or go on.
    fn rest(&self, is_asked: bool) -> Reply {
        self.rest.0.store(is_asked, Ordering::Release);
        if let Some(worker) = &self.worker {
            worker.unpark();
        }
        Reply::Done
    }
}

fn kernels() -> &'static CStr {
    CStr::from_bytes_with_nul(KERNELS.as_bytes()).unwrap_or_default()
}

/// What NVML says of the GPU of this UUID.
fn nvml_memory(uuid: &str) -> Reply {
    let memory = Nvml::open().and_then(|nvml| nvml.find(uuid)?.map(|gpu| nvml.memory(gpu)).transpose());
    match memory {
        Ok(Some(memory)) => Reply::Memory {
            free_bytes: memory.free,
            total_bytes: memory.total,
        },
        Ok(None) => Reply::Failed {
            message: format!("NVML does not show {uuid}"),
        },
        Err(problem) => Reply::Failed {
            message: problem.to_string(),
        },
    }
}
