//! Protocols between kubelet and its plugins, both sides of them (`proto/`, which also documents them): the device plugin
//! API, registration by a watched directory, Dynamic Resource Allocation, and PodResources.

#[allow(
    missing_docs,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "generated"
)]
mod generated {
    /// Package `v1beta1`: the device plugin API.
    pub mod v1beta1 {
        tonic::include_proto!("v1beta1");
    }

    /// Package `v1`: PodResources.
    pub mod podresources {
        tonic::include_proto!("v1");
    }

    /// Package `k8s.io.kubelet.pkg.apis.dra.v1`: drivers for Dynamic Resource Allocation.
    pub mod dra {
        tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
    }

    /// Package `v1alpha1`: health of such a driver's devices.
    pub mod dra_health {
        tonic::include_proto!("v1alpha1");
    }

    /// Package `pluginregistration`: what kubelet asks sockets in a directory that it watches.
    pub mod pluginregistration {
        tonic::include_proto!("pluginregistration");
    }
}

pub use generated::{dra, dra_health, pluginregistration, podresources, v1beta1};

mod connect;

pub use connect::connect;

/// Version of the device plugin API, as it is registered.
pub const VERSION: &str = "v1beta1";
/// A device that can be given out.
pub const HEALTHY: &str = "Healthy";
/// A device that cannot.
pub const UNHEALTHY: &str = "Unhealthy";
/// Type of a device plugin in [`pluginregistration::PluginInfo`].
pub const DEVICE_PLUGIN: &str = "DevicePlugin";
/// Type of a driver for Dynamic Resource Allocation in [`pluginregistration::PluginInfo`].
pub const DRA_PLUGIN: &str = "DRAPlugin";
/// The service that a driver serves, as it is registered.
pub const DRA_SERVICE: &str = "v1.DRAPlugin";
/// The service of its devices' health, as it is registered.
pub const DRA_HEALTH_SERVICE: &str = "v1alpha1.DRAResourceHealth";
/// Name of kubelet's own socket in its directories.
pub const KUBELET_SOCKET: &str = "kubelet.sock";
/// Name of kubelet's record of devices, beside its socket.
pub const CHECKPOINT: &str = "kubelet_internal_checkpoint";
/// The longest device ID (characters).
pub const ID_MAX: usize = 63;
/// The largest message of a plugin (bytes): gRPC's default, which kubelet keeps.
pub const MESSAGE_MAX: usize = 4 << 20;
/// The largest answer of PodResources (bytes), as kubelet serves it.
pub const POD_RESOURCES_MAX: usize = 16 << 20;
