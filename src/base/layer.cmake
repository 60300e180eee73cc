target_link_libraries(leeway_base PUBLIC Threads::Threads PRIVATE ZLIB::ZLIB)
