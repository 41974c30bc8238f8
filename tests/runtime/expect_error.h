// A check that an expression throws a type with a part of a message.
#pragma once

#include <gtest/gtest.h>

#include <string>

#define EXPECT_ERROR(expression, E, part)                                               \
  try {                                                                                 \
    expression;                                                                         \
    ADD_FAILURE() << "expected " #E " from " #expression;                               \
  } catch (const E& error) {                                                            \
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what(); \
  }
