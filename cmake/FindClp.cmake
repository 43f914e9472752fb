# SPDX-License-Identifier: Apache-2.0
# COIN-OR CLP (Debian: coinor-libclp-dev) as target Clp::Clp. Its own packages carry a pkg-config file only.
find_path(Clp_INCLUDE_DIR coin/ClpSimplex.hpp)
find_library(Clp_LIBRARY Clp)
find_library(CoinUtils_LIBRARY CoinUtils)
mark_as_advanced(Clp_INCLUDE_DIR Clp_LIBRARY CoinUtils_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Clp REQUIRED_VARS Clp_LIBRARY CoinUtils_LIBRARY Clp_INCLUDE_DIR)
if(Clp_FOUND AND NOT TARGET Clp::Clp)
  add_library(Clp::Clp INTERFACE IMPORTED)
  # CLP's headers include each other by bare name.
  target_include_directories(Clp::Clp SYSTEM INTERFACE ${Clp_INCLUDE_DIR}/coin)
  target_link_libraries(Clp::Clp INTERFACE ${Clp_LIBRARY} ${CoinUtils_LIBRARY})
endif()
