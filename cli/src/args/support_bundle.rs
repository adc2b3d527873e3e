//! Arguments of `vcuda support-bundle`.

use std::path::PathBuf;

use clap::Args;

pub(super) const BUNDLE_EXAMPLES: &str = "\
Examples:
  vcuda support-bundle                  vcuda-support-TIME.tar.gz
  sudo vcuda support-bundle /tmp/b.tar.gz
  tar -xzOf b.tar.gz support/MANIFEST   what is in it, and what is not";

pub(super) const BUNDLE_DETAILS: &str = "\
In it: versions, the kernel's and the driver's; doctor, smi, ps, events, grants; \
the files of configuration, the daemons' last log lines and the tenants' limits, \
as far as this user may read them. Values that look like secrets are removed. \
Not in it: environments, and the arguments of programs unless asked. It names \
tenants, users and paths: look at it before you send it.";

#[derive(Args, Debug)]
pub(crate) struct SupportBundleArgs {
    /// The archive to write [default: vcuda-support-TIME.tar.gz]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Also show the arguments of programs that use a GPU
    #[arg(long)]
    pub(crate) with_arguments: bool,
    /// Show the simulated machine of VCUDA_SIM even if there is a real GPU
    #[arg(long)]
    pub(crate) sim: bool,
}
