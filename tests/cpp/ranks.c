// SPDX-License-Identifier: Apache-2.0
// A rank written in C11, built against an install tree: prints one line if all is as it must be.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headrace/comm/c_api.h"

#define NEED(condition)                                                                          \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, hr_comm_last_error()->message); \
      exit(1);                                                                                   \
    }                                                                                            \
  } while (0)

int main(void) {
  hr_comm_context* context = NULL;
  NEED(hr_comm_join(20000, &context) == HR_COMM_OK);
  hr_comm_set* world = hr_comm_world(context);
  const int32_t rank = hr_comm_rank(world);
  const int32_t size = hr_comm_size(world);
  hr_comm_place place;
  NEED(hr_comm_place_of(context, &place) == HR_COMM_OK);
  NEED(place.rank == rank && place.local_size == size && place.cross_size == 1);

  double sum = rank + 1;
  NEED(hr_comm_all_reduce(world, (hr_comm_in){&sum, 1, HR_COMM_F64},
                          (hr_comm_out){&sum, 1, HR_COMM_F64}, HR_COMM_SUM, NULL,
                          NULL) == HR_COMM_OK);
  NEED(sum == size * (size + 1) / 2.0);

  hr_comm_options options = HR_COMM_OPTIONS;
  options.name = "greeting";
  char text[8] = "";
  if (rank == 0) {
    strcpy(text, "hello");
  }
  hr_comm_work* work = NULL;
  NEED(hr_comm_broadcast(world, (hr_comm_out){text, sizeof text, HR_COMM_U8}, 0, &options, &work) ==
       HR_COMM_OK);
  int done = 0;
  while (!done) {
    NEED(hr_comm_test(work, &done) == HR_COMM_OK);
  }
  hr_comm_work_free(work);
  NEED(strcmp(text, "hello") == 0);

  hr_comm_set* alone = NULL;
  NEED(hr_comm_split(world, rank, 0, &alone) == HR_COMM_OK);
  NEED(hr_comm_size(alone) == 1);
  hr_comm_set_free(alone);

  const hr_comm_in wrong = {&sum, 2, HR_COMM_F64};
  NEED(hr_comm_all_reduce(world, wrong, (hr_comm_out){&sum, 1, HR_COMM_F64}, HR_COMM_SUM, NULL,
                          NULL) == HR_COMM_INVALID_ARGUMENT);
  NEED(strstr(hr_comm_last_error()->message, "out has 1 elements, it must have 2") != NULL);
  NEED(strcmp(hr_comm_code_name(hr_comm_last_error()->code), "invalid_argument") == 0);
  NEED(hr_comm_barrier(world, NULL, NULL) == HR_COMM_OK);
  if (rank == 0) {
    printf("%d ranks in C, sum %.0f\n", (int)size, sum);
  }
  hr_comm_free(context);
  return 0;
}
