// Rates at which a drive scores, fetches and attends to long contexts, in closed form: what a host divides tokens by.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "base/row_quantisation.h"
#include "base/token_score.h"
#include "base/units.h"
#include "csd_model/drive_config.h"
#include "csd_model/page_schedule.h"

namespace csdsim::csd_model {

/// What is asked of the heads of a layer.
struct KvRequestShape {
  std::uint32_t head_dim = 128;  ///< d
  std::uint32_t group = 1;       ///< G, query heads of a KV head
  std::uint32_t tokens = 0;      ///< of a head's range: its pages are read together
};

/// Bytes of K per second that the drive scores: the slowest of the flash channels, the planes, an engine's way to the
/// pages (PeerReads) and its scoring unit, or its kernels where fp16 has no unit. Start, end and results of a command
/// are left out. UserError if the engine lacks the precision.
Bandwidth scoring_rate(const DriveConfig& drive, const KvRequestShape& shape, ScorePrecision precision);

/// Rows of K or V that a read of one of them moves: those of a page, or of a group of codewords
/// (KvLayout::fetch_tokens).
double rows_fetched(const DriveConfig& drive, std::uint32_t head_dim);

/// Bytes of K and V of chosen tokens per second that the drive returns, if what is read for one (rows_fetched) holds
/// `rows` of them: the slowest of channels, planes and peer reads, and the link, which carries rows only.
Bandwidth fetch_rate(const DriveConfig& drive, const KvRequestShape& shape, double rows);

/// SparF of a head.
struct SparseShape {
  std::uint32_t components = 0;  ///< r
  std::uint32_t tokens = 0;      ///< k
  double touched = 1;            ///< share of the token pages in which the k tokens are
};

/// Attention of a layer in one drive.
struct AttentionShape {
  std::uint32_t head_dim = 128;
  std::uint32_t group = 1;  ///< query heads of a KV head
  std::uint32_t heads = 1;  ///< KV heads in the drive
  std::uint32_t sequences = 1;
  double tokens = 0;                       ///< of each sequence in the drive
  double grown = 0;                        ///< those among them of which it is not known how full their last page is
  std::optional<SparseShape> sparse = {};  ///< unset: dense
  double appended = 0;                     ///< tokens of each sequence that are stored meanwhile
  RowQuantisation kv = {};                 ///< how rows are kept
  Bytes read = {};                         ///< of the block namespace, in whole blocks, which flash reads before
  double queries_after = 0;                ///< seconds from the last outputs, when these reads begin, to the queries
  double way = 0;                          ///< seconds in which a byte of these reads leaves the drive
  std::uint32_t layers = 1;                ///< of the model: each has its pages in other planes
};

/// Seconds from the arrival of the queries to the last output, for all heads of all sequences in one command, and
/// without tokens those of the reads: what the slowest of channels, planes, peer reads, map lookups, argtopk unit,
/// kernels and job slots takes, and what the first pages and the last job take alone.
/// These are the rates. Where PageSchedule knows all features of the drive, dense attention uses it instead:
/// - Up to 1,024 pages: each page is followed.
/// - From 2,048 pages on: if a head has at most 8 pages of K and no blocks are read, the first 4,096 pages are followed
///   (PageSchedule::of_many); if it has at least 16, the rates count.
/// - Between these limits (1,024 and 2,048 pages, 8 and 16 pages of K): the weighted mean of both.
/// With reads of blocks, the time begins with the reads, layers follow one another, and outputs leave the drive after
/// the blocks that came before them. Without such reads, dense attention takes at least as long as the internal link
/// needs for the pages and for the rows that fill no page, which are not in flash. Transfers over the drive's link are
/// not part of the time.
double attention_time(const DriveConfig& drive, const AttentionShape& shape);

/// attention_time() of one drive, for those who ask often: pages that are followed one by one are followed once.
class AttentionTimes {
 public:
  explicit AttentionTimes(const DriveConfig& drive);
  AttentionTimes(const AttentionTimes&) = delete;  // the schedule refers to the drive
  AttentionTimes& operator=(const AttentionTimes&) = delete;

  double operator()(const AttentionShape& asked);

 private:
  using Asked = std::array<double, 12>;  ///< what the schedule depends on

  double by_schedule_or_rates(const AttentionShape& shape, double idle);
  /// Pages one by one. Without blocks, the drive has been `idle` before the queries.
  double scheduled(const AttentionShape& shape, double blocks, double idle);
  /// Of more pages than are followed exactly, `groups` of K and of V of each head.
  double of_many_pages(const AttentionShape& shape, double groups, double idle);
  ScheduledTimes of_many_jobs(const AttentionShape& shape, std::uint32_t groups);

  DriveConfig drive_;
  std::optional<PageSchedule> schedule_;
  std::map<Asked, double> scheduled_;
  std::map<Asked, ScheduledTimes> of_many_jobs_;
};

/// Seconds from the first command to the last score of all tokens of `shape`: what the slowest of channels, planes,
/// peer reads, map lookups, scoring unit and job slots takes, and what the first page, the last job and the way of a
/// command take alone. Only tokens of full pages are read from flash; the number of full pages is the mean over the
/// growth. Two commands of `chunk` tokens of each sequence (0: all) are under way at a time, which hides the way of all
/// but the first. 0 without tokens. UserError if the engine lacks the precision.
double scoring_time(const DriveConfig& drive, const AttentionShape& shape, ScorePrecision precision,
                    std::uint32_t chunk);

/// What tokens cost that fill a page: K and V of their group are programmed one after the other in one plane, from
/// which the next scores read.
struct Storing {
  double share = 0;    ///< of the `grown` tokens, those that fill a page
  double seconds = 0;  ///< of both programs
};
Storing storing_of(const DriveConfig& drive, const AttentionShape& shape);

/// Tokens of each sequence, `chosen` of which are picked at random.
struct RandomPicks {
  double tokens = 0;
  double chosen = 0;
};

/// Seconds from the first command to the last row of the chosen tokens of all heads and sequences of `shape`, whose
/// `tokens` do not count. The parts together are the tokens of a sequence; the same share of each part is in full
/// pages. What is read for a row moves whole (rows_fetched), each with a sense of its own; the rows of a command cross
/// the link when all of its pages are there, beside the pages of the commands after it. 0 where nothing is chosen.
double fetching_time(const DriveConfig& drive, const AttentionShape& shape, std::span<const RandomPicks> picks);

}  // namespace csdsim::csd_model
