# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: libraries, headers, the program, and the package that find_package(Maypole) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY MAYPOLE_LIBRARIES)
install(TARGETS ${libraries} EXPORT MaypoleTargets COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT MaypoleTargets NAMESPACE maypole:: COMPONENT development
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Maypole)
configure_package_config_file(cmake/MaypoleConfig.cmake.in ${PROJECT_BINARY_DIR}/MaypoleConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Maypole)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/MaypoleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/MaypoleConfig.cmake ${PROJECT_BINARY_DIR}/MaypoleConfigVersion.cmake cmake/FindClp.cmake
        COMPONENT development
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Maypole)
install(TARGETS maypole RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
