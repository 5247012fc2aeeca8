# docker buildx bake --file docker/docker-bake.hcl [GROUP or TARGET]       --print shows what would be built
#
# Each target of the Dockerfile for each variant. A release pins the bases by digest:
#   UBUNTU=ubuntu:24.04@sha256:... CUDA_BASE=...@sha256:... CUDA_DEVEL=...@sha256:... \
#     docker buildx bake --file docker/docker-bake.hcl --push release

variable "REGISTRY" { default = "be" }
variable "VERSION" { default = "0" }
variable "REVISION" { default = "unknown" }
variable "CREATED" { default = timestamp() }
variable "PROJECT" { default = "examples" }
variable "PACKAGE" { default = "" }
variable "PREBUILD" { default = "prebuild.py" }
variable "ARCHS" { default = "8.0,9.0" }

variable "UBUNTU" { default = "ubuntu:24.04" }
variable "CUDA_BASE" { default = "nvidia/cuda:13.0.2-base-ubuntu24.04" }
variable "CUDA_DEVEL" { default = "nvidia/cuda:13.0.2-devel-ubuntu24.04" }

group "default" { targets = ["devel-cpu"] }

# cpu: JAX on the CPU, CUDA kernels can be compiled. ubuntu: a GPU, nvcc and all libraries from wheels.
# cuda: the same on NVIDIA's base. system: NVIDIA's own toolkit instead of the wheels' nvcc.
target "image" {
  matrix = {
    stage = ["devel", "runtime", "aot"]
    variant = [
      { name = "cpu", base = UBUNTU, cuda = "wheels", jax = "cpu" },
      { name = "ubuntu", base = UBUNTU, cuda = "wheels", jax = "cuda13" },
      { name = "cuda", base = CUDA_BASE, cuda = "wheels", jax = "cuda13" },
      { name = "system", base = CUDA_DEVEL, cuda = "system", jax = "cuda13" },
    ]
  }
  name       = "${stage}-${variant.name}"
  context    = "."
  dockerfile = "docker/Dockerfile"
  target     = stage
  tags       = ["${REGISTRY}:${VERSION}-${stage}-${variant.name}"]
  args = {
    BASE_IMAGE = variant.base
    CUDA       = variant.cuda
    JAX        = variant.jax
    VERSION    = VERSION
    REVISION   = REVISION
    PROJECT    = PROJECT
    PACKAGE    = PACKAGE
    PREBUILD   = PREBUILD
    ARCHS      = ARCHS
  }
  labels = { "org.opencontainers.image.created" = CREATED }
}

# One image for both architectures, with its contents and its origin attached. Kernels of a project are the project's
# own to publish: aot is not part of it.
target "published" {
  matrix = {
    stage   = ["devel", "runtime"]
    variant = ["cpu", "ubuntu", "cuda", "system"]
  }
  name      = "release-${stage}-${variant}"
  inherits  = ["${stage}-${variant}"]
  platforms = ["linux/amd64", "linux/arm64"]
  attest    = ["type=sbom", "type=provenance,mode=max"]
}

group "release" { targets = ["published"] }
