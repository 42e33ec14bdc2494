"""The batching handler: the files of this folder travel in a model's archive, next to its serving.properties.

DJL Serving puts a model's folder on Python's search path, and an archive holds plain files at its root only. Hence the
prefix `cohost_`, which keeps these modules from hiding others of the same name, and hence relative imports: `model.py`
declares its own folder to be a package, so the files that are imported as `cohost.handler.…` here run unchanged there.

    model.py               the entry point that DJL Serving calls, in the proxy process
    cohost_restart.py, cohost_reload.py        the start of a proxy process and its first call
    cohost_service.py      the path of one request in the proxy process: read, tokenise, have it run, answer
    cohost_link.py, cohost_place.py            the connection to the engine process, which is started and replaced
    cohost_frames.py, cohost_facts.py          the messages between the two processes; a loaded model's facts
    cohost_host.py, cohost_hosted.py           the engine process: its program, and the models in it
    cohost_scheduler.py    the order of the passes of all models of an engine process
    cohost_options.py      the keys of serving.properties
    cohost_request.py, cohost_texts.py         a body, its parameters and its texts; every 400 and 413
    cohost_tasks.py, cohost_classification.py, cohost_zero_shot.py, cohost_features.py    the tasks
    cohost_tokenizer.py    sequences of tokens, truncated at the model's true limit
    cohost_batches.py      the order of requests and the forming of batches, without torch
    cohost_engine.py, cohost_forward.py, cohost_packed.py        the batches of one model; a failing batch is bisected
    cohost_stream.py       copies to and from the device; small passes repeated from recordings
    cohost_watchdog.py     detects a hanging pass, and ends the engine process
    cohost_loading.py, cohost_trials.py, cohost_device.py, cohost_warm_up.py      the steps before READY
    cohost_errors.py, cohost_memory.py         errors with their HTTP status; running out of memory
"""
