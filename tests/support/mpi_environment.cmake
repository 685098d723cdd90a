# The environment of tests that mpirun starts, for Open MPI 4 and 5; other MPIs ignore it. Ranks
# that share cores yield while they wait. MPI uses only the loopback interface, and no rank reads
# the memory of another directly. The launcher of Open MPI 5 has parameters of its own (PRTE_MCA_).
# Version 5 calls the transport "vader" "sm", and takes both names.
set(LMDBIO_MPI_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_btl=self,vader
  OMPI_MCA_btl_vader_single_copy_mechanism=none
  OMPI_MCA_smsc=^cma
  OMPI_MCA_hwloc_base_binding_policy=none
  PRTE_MCA_hwloc_default_binding_policy=none
  OMPI_MCA_mpi_yield_when_idle=1
  OMPI_MCA_rmaps_base_oversubscribe=1
  PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe)
