// The map keeps its limits, in keys and in bytes, and counts right when values are replaced and
// removed.
#include <gtest/gtest.h>

#include <string>

#include "metastore/metadata_map.h"

namespace mooncake::metastore {
namespace {

TEST(MetadataMap, AddKeepsWhatIsThere) {
  MetadataMap map;
  EXPECT_EQ(map.add("k", "1").value(), MetadataMap::Added::kNew);
  EXPECT_EQ(map.add("k", "1").value(), MetadataMap::Added::kUnchanged);
  EXPECT_EQ(map.add("k", "2").value(), MetadataMap::Added::kDiffers);
  EXPECT_EQ(map.get("k").value(), "1");
  EXPECT_EQ(map.add("", "1").error().code(), Code::kInvalidArgument);
}

TEST(MetadataMap, KeysAreBounded) {
  MetadataMap map({.max_keys = 2});
  ASSERT_TRUE(map.put("a", "1"));
  ASSERT_TRUE(map.put("b", "1"));
  EXPECT_EQ(map.put("c", "1").error().code(), Code::kMetadataError);
  EXPECT_TRUE(map.put("a", "2"));
  ASSERT_TRUE(map.remove("a"));
  EXPECT_TRUE(map.put("c", "1"));
  EXPECT_EQ(map.size(), 2u);
}

TEST(MetadataMap, BytesAreBounded) {
  MetadataMap map({.max_bytes = 10});
  ASSERT_TRUE(map.put("a", "12345678"));
  EXPECT_EQ(map.put("b", "1").error().code(), Code::kMetadataError);
  EXPECT_EQ(map.put("a", "1234567890").error().code(), Code::kMetadataError);
  EXPECT_EQ(map.get("a").value(), "12345678");
  ASSERT_TRUE(map.put("a", "1234"));
  EXPECT_TRUE(map.put("b", "1234"));
  ASSERT_TRUE(map.remove("a"));
  EXPECT_TRUE(map.put("a", "4321"));
}

}  // namespace
}  // namespace mooncake::metastore
