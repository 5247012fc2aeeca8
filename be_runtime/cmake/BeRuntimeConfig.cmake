# find_package(BeRuntime) finds the Python that builds kernels; be_add_kernels() builds a package's kernels with it.
#
# scikit-build-core finds this file by itself; plain CMake is told with
#   cmake -DBeRuntime_ROOT="$(python -m be_runtime cmake-dir)" ...

if(NOT Python_EXECUTABLE)
  find_package(Python REQUIRED COMPONENTS Interpreter)
endif()
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import be_toolchain; print(be_toolchain.__version__)"
  OUTPUT_VARIABLE BeRuntime_VERSION
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
  RESULT_VARIABLE _be_runtime_result)
if(NOT _be_runtime_result EQUAL 0)
  set(BeRuntime_FOUND FALSE)
  set(BeRuntime_NOT_FOUND_MESSAGE "${Python_EXECUTABLE} has no brainevent-toolchain: set Python_EXECUTABLE")
  return()
endif()

# be_add_kernels(<target> PACKAGE <folder> [ARCHS <arch>...] [DESTINATION <folder>])
#
# Builds the kernels of the Python package in a folder whenever something in that folder changed, and installs them.
#   PACKAGE      Folder of the package, which has kernels.toml; relative to this folder of the project.
#   ARCHS        Architectures of CUDA code, such as 8.0 9.0, instead of those in kernels.toml.
#   DESTINATION  Folder of the package where it is installed; the package's name unless given.
function(be_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PACKAGE;DESTINATION" "ARCHS")
  if(NOT arg_PACKAGE OR arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR
      "be_add_kernels(${target} PACKAGE <folder> [ARCHS <arch>...] [DESTINATION <folder>]): "
      "PACKAGE is needed; wrong are: ${arg_UNPARSED_ARGUMENTS} ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  cmake_path(ABSOLUTE_PATH arg_PACKAGE BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE OUTPUT_VARIABLE package)
  if(NOT EXISTS "${package}/kernels.toml")
    message(FATAL_ERROR "be_add_kernels(${target}): ${package} has no kernels.toml")
  endif()
  if(SKBUILD_STATE STREQUAL "editable")  # kernels are compiled from the project's own folder
    add_custom_target(${target})
    return()
  endif()
  cmake_path(GET package FILENAME name)
  if(NOT arg_DESTINATION)
    set(arg_DESTINATION "${name}")
  endif()

  # A file that is new in the folder makes CMake look again.
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${package}/*")
  list(FILTER sources EXCLUDE REGEX "/(_kernels|__pycache__)/|\\.pyi$")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${target}/_kernels")
  set(options "")
  if(arg_ARCHS)
    list(JOIN arg_ARCHS "," archs)
    list(APPEND options --archs "${archs}")
  endif()
  add_custom_command(
    OUTPUT "${folder}/index.json"
    COMMAND "${Python_EXECUTABLE}" -m be_runtime build "${package}" --out "${folder}" ${options}
    DEPENDS ${sources}
    COMMENT "Building the kernels of ${name}"
    VERBATIM
    USES_TERMINAL)
  add_custom_target(${target} ALL DEPENDS "${folder}/index.json")
  set_target_properties(${target} PROPERTIES BE_KERNELS "${folder}")
  install(DIRECTORY "${folder}" DESTINATION "${arg_DESTINATION}" USE_SOURCE_PERMISSIONS)
endfunction()
